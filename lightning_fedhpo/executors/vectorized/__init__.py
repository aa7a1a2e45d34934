"""Jobs of many clients and arms as one batched computation."""
