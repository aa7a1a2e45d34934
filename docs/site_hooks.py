"""Hooks of MkDocs: pages and files of the repository that lie outside docs/, and notebooks as pages.

Links are written as they work in the repository. A file outside docs/ has its path in the repository on the site, too.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = ["CHANGELOG.md", "CONTRIBUTING.md", *(str(path.relative_to(ROOT)) for path in ROOT.glob("recipes/**/*.md"))]
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, the files that pages link to, and the notebooks."""
    for page in PAGES:
        files.append(File.generated(config, page, abs_src_path=str(ROOT / page)))
    for notebook in sorted((ROOT / "docs").glob("notebooks/*.ipynb")):
        text = notebook_page(json.loads(notebook.read_text(encoding="utf-8")))
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=text))
    known = {file.src_uri for file in files}
    for file in [file for file in files if file.is_documentation_page()]:
        for link in LINK.findall(file.content_string):
            target = site_path(file.src_uri, link)
            if target not in known and (ROOT / target).is_file():
                files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
                known.add(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links of a page lead to where their targets are on the site."""
    here = page.file.src_uri
    return LINK.sub(lambda link: posixpath.relpath(site_path(here, link[0]), posixpath.dirname(here) or "."), markdown)


def site_path(page: str, link: str) -> str:
    """Return where the target of a page's link is on the site."""
    folder = posixpath.dirname(page if page in PAGES else f"docs/{page}")
    target = posixpath.normpath(posixpath.join(folder, link))
    if (ROOT / target).is_dir():
        target += "/README.md"
    return re.sub(r"\.ipynb$", ".md", target.removeprefix("docs/"))


def notebook_page(notebook: dict[str, Any]) -> str:
    """Return a notebook as Markdown, with its outputs."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [output_text(output) for output in cell.get("outputs", ())]
    return "\n\n".join(parts)


def output_text(output: dict[str, Any]) -> str:
    """Return an output of a notebook's cell as Markdown."""
    shown = output.get("data", {})
    if "image/png" in shown:
        return f'<img alt="output" src="data:image/png;base64,{"".join(shown["image/png"]).strip()}">'
    if "text/html" in shown:
        return "".join(shown["text/html"])
    return f"```text\n{''.join(output.get('text') or shown['text/plain']).rstrip()}\n```"
