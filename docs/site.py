"""What the site has beside the pages of docs/: hooks of MkDocs, see mkdocs.yml.

* Pages that lie outside of docs/ (those of the checkout's root, and of each example) become pages of the site, at the
  end of their part, and links to them follow.
* Drawings are made anew from the code's own numbers (`drawings`).
* The script with which search works in pages that are read as files comes from the site itself.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs.drawings import DRAWINGS  # noqa: E402  # found from the checkout

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import File, Files
    from mkdocs.structure.pages import Page

FIRST = {"README.md": "index.md"}  # the site has its own first page
PARTS = {  # part of the site -> file of the checkout -> its page
    "Developers": {one.name: f"developers/{one.stem.lower()}.md" for one in sorted(ROOT.glob("*.md"))},
    "Tutorials": {
        f"examples/{one.parent.name}/README.md": f"tutorials/example-{one.parent.name}.md"
        for one in sorted(ROOT.glob("examples/*/README.md"))
    },
}
del PARTS["Developers"]["README.md"]
OUTSIDE = PARTS["Developers"] | PARTS["Tutorials"]
LINK = re.compile(r"\[([^\[\]]+)\]\(([^)\s]+)\)")
SHIM = "https://unpkg.com/iframe-worker/shim"
TEXT_OF = re.compile(r"^<!-- text of (\S+) -->$", re.MULTILINE)
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages from outside at the end of their parts."""
    parts: dict[str, list[Any]] = {name: pages for part in config.nav or [] for name, pages in part.items()}
    for part, added in PARTS.items():
        parts[part] += added.values()
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside, and the drawings as the code draws them now."""
    from mkdocs.structure.files import File  # noqa: PLC0415  # only a build of the site has it

    made: list[File] = []
    for source, page in OUTSIDE.items():
        made.append(File.generated(config, page, content=linked((ROOT / source).read_text(), source)))
    made += [File.generated(config, f"drawings/{name}.svg", content=draw()) for name, draw in DRAWINGS.items()]
    for file in made:
        there = files.get_file_from_path(file.src_uri)
        if there is not None:
            files.remove(there)
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to pages that lie outside of docs/ lead to their pages of the site; and texts of modules are shown."""
    if page.file.src_uri in OUTSIDE.values():
        return markdown  # done, from where they lie
    return TEXT_OF.sub(lambda found: docstring_of(found[1]), linked(markdown, f"docs/{page.file.src_uri}"))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Nothing is loaded from elsewhere."""
    assert output.count(SHIM) == 1, "the theme has another script for search in files: see docs/site.py"
    home = os.path.relpath("assets/iframe-worker.js", os.path.dirname(page.file.dest_uri) or ".")
    return output.replace(SHIM, home)


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """The page of a server that has not found one: its addresses begin at the server's root."""
    return output_content.replace(SHIM, "/assets/iframe-worker.js")


def docstring_of(module: str) -> str:
    """The text at the top of a module, as it stands there."""
    text = ast.get_docstring(ast.parse((ROOT / module).read_text()))
    assert text is not None, module
    return f"```text\n{text}\n```"


def linked(text: str, source: str) -> str:
    """The text of a file of the checkout, with links as its page of the site needs them.

    A link to a file or folder that the site does not have (code, the folder of decisions) becomes plain text.
    """
    parts = FENCE.split(text)
    parts[::2] = [LINK.sub(lambda found: _link(found, source), part) for part in parts[::2]]
    return "".join(parts)


def _link(found: re.Match[str], source: str) -> str:
    text, target = found.groups()
    path, _, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", target):
        return found[0]
    there = os.path.normpath(os.path.join(os.path.dirname(source), path))
    page = {**OUTSIDE, **FIRST}.get(there) or (there.removeprefix("docs/") if there.startswith("docs/") else None)
    if page is None or (ROOT / there).is_dir():
        return text
    here = OUTSIDE.get(source) or source.removeprefix("docs/")
    return f"[{text}]({os.path.relpath(page, os.path.dirname(here) or '.')}{'#' + anchor if anchor else ''})"
