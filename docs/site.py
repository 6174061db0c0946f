"""Makes mkdocs take the project's Markdown files as they are; mkdocs.yml.in names this file. Needs mkdocs 1.4.

- Pages are all Markdown files of the sources, in the folders that they have there.
- The navigation is docs/README.md: its headings, and below each the pages that its table leads to. Records of decisions are
  below their index.
- A source that a page links to is in the site as text, with `.txt` at the end of its name. A link to a folder leads to its
  README.md; where it has none, the text of the link stays. docs/reference.md is the reference that Doxygen makes.
- Nothing may be loaded from other sites. Links and anchors tools/links checks.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import logging
import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[1]
INDEX = "docs/README.md"
REFERENCE = "docs/reference.md"
PICTURES = (".svg", ".png")

# In strict mode a warning ends the build.
log = logging.getLogger("mkdocs.sinew")


def load_links():
    """tools/links, which has no suffix."""
    loader = importlib.machinery.SourceFileLoader("links", str(ROOT / "tools/links"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


links = load_links()


class Source(File):
    """Is shown, whatever a browser knows of its kind."""

    def _get_dest_path(self, *arguments, **named):
        return super()._get_dest_path(*arguments, **named) + ".txt"


class Reference(File):
    """Doxygen makes it, from the page among others."""

    def _get_dest_path(self, *arguments, **named):
        return "reference/html/index.html"

    def is_documentation_page(self):
        return False

    def copy_file(self, dirty=False):
        pass


def pages():
    return [path for path in links.files_of(ROOT) if path.suffix == ".md"]


def title_of(name):
    """What stands in front of the colon in its heading."""
    heading = (ROOT / name).read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
    return heading.split(": ")[0].replace("`", "")


def groups():
    """The headings of the index, each with the pages of its table."""
    found = {}
    seen = {INDEX, REFERENCE, "README.md", "examples/README.md", "CHANGELOG.md"}
    heading = None
    for line in (ROOT / INDEX).read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:].split(" (")[0]
            found[heading] = []
        for _, link in links.links_of(line) if heading and line.startswith("|") else []:
            name = posixpath.normpath(posixpath.join("docs", link.partition("#")[0]))
            if name.endswith(".md") and name not in seen:
                seen.add(name)
                found[heading].append(name)
    return found


def navigation():
    nav = [{"Home": "README.md"}, {title_of("examples/README.md"): "examples/README.md"}]
    for heading, names in groups().items():
        entries = []
        for name in names:
            records = [record.relative_to(ROOT).as_posix() for record in sorted((ROOT / name).parent.glob("[0-9]*.md"))]
            below = [{title_of(record): record} for record in records]
            entries.append({title_of(name): [{"All": name}, *below] if below else name})
        nav.append({heading: entries})
    return [*nav, {"Reference": [{"Functions and classes": REFERENCE}, {"All pages": INDEX}, {"Changes": "CHANGELOG.md"}]}]


def on_config(config):
    config["nav"] = navigation()
    # Anchors are those of tools/links, and of where else the pages are read.
    config["mdx_configs"]["toc"] = {**config["mdx_configs"].get("toc", {}), "slugify": links.slug_of}
    return config


def on_files(files, config):
    def new(kind, name):
        return kind(name, str(ROOT), config["site_dir"], config["use_directory_urls"])

    of_theme = [file for file in files if Path(config["docs_dir"]) not in Path(file.abs_src_path).parents]
    found = {}
    for page in pages():
        name = page.relative_to(ROOT).as_posix()
        found[name] = new(Reference if name == REFERENCE else File, name)
        for _, link in links.links_of(page.read_text(encoding="utf-8")):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link.partition("#")[0]))
            if target not in found and not target.endswith(".md") and (ROOT / target).is_file():
                found[target] = new(File if target.endswith(PICTURES) else Source, target)
    return Files([*found.values(), *of_theme])


def on_nav(nav, config, files):
    reached = {page.file.src_uri for page in nav.pages}
    for name in sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")):
        if name not in reached:
            log.warning(f"{name}: {INDEX} does not lead to it")


def on_page_markdown(markdown, page, config, files):
    """With an empty line in front of each list, without which Python's Markdown sees none."""
    lines = markdown.splitlines()
    is_item = [bool(re.match(r"[-*] ", line)) for line in links.lines_of(markdown)]
    return "\n".join(
        f"\n{line}" if is_item[i] and i > 0 and lines[i - 1] and not is_item[i - 1] and not lines[i - 1].startswith(" ") else line
        for i, line in enumerate(lines)
    )


def on_page_content(html, page, config, files):
    """Links to what has no suffix: mkdocs leaves them as they are."""

    def led(match):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), unquote(match[1])))
        file = files.get_file_from_path(target) or files.get_file_from_path(f"{target}/README.md")
        return f'<a href="{get_relative_url(file.url, page.url)}">{match[2]}</a>' if file else match[2]

    return re.sub(r'<a href="([^":#?]*/|(?:[^":#?]*/)?[^":#?./]+)">(.*?)</a>', led, html, flags=re.DOTALL)


class Loads(HTMLParser):
    """What a page loads."""

    def __init__(self, path):
        super().__init__()
        self.found = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        if tag in ("link", "script", "img", "iframe"):
            self.found += [value for key, value in attrs if key in ("href", "src") and value]


def on_post_build(config):
    site = Path(config["site_dir"])
    for path in sorted(site.rglob("*.html")):
        for loaded in Loads(path).found:
            if links.ELSEWHERE.match(loaded) or loaded.startswith("//"):
                log.warning(f"{path.relative_to(site)}: loads {loaded}")
