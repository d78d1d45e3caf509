"""Check that every relative link in the Markdown files leads to a file and, if named, a heading."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import unquote

_ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_INLINE = re.compile(r"\]\(\s*<?([^\s)>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^\[[^\]]+\]:\s+<?([^\s>]+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
_EXTERNAL = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def broken_links(root: Path) -> list[str]:
    """Every link under `root` that leads nowhere, as `file: link: why`."""
    return [
        f"{page.relative_to(root)}: {link}: {problem}"
        for page in _pages(root)
        for link in _links(page.read_text(encoding="utf-8"))
        if (problem := _problem(page, link)) is not None
    ]


def _pages(root: Path) -> list[Path]:
    """The Markdown files, without folders that are hidden, installed or links."""
    pages: list[Path] = []
    for entry in sorted(root.iterdir()):
        if entry.name.startswith(".") or entry.name in {"build", "dist", "node_modules"}:
            continue
        if entry.is_dir() and not entry.is_symlink() and not (entry / "pyvenv.cfg").exists():
            pages += _pages(entry)
        elif entry.suffix == ".md":
            pages.append(entry)
    return pages


def _links(text: str) -> list[str]:
    prose = _CODE.sub("", _FENCE.sub("", text))
    found = _INLINE.findall(prose) + _REFERENCE.findall(prose)
    return [link for link in found if not _EXTERNAL.match(link)]


def _problem(page: Path, link: str) -> str | None:
    path, _, anchor = unquote(link).partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return "no such file"
    if anchor and target.suffix == ".md" and anchor not in _anchors(target):
        return "no such heading"
    return None


def _anchors(page: Path) -> set[str]:
    """The anchors that the usual renderers give to headings; a second same one gets `-1`."""
    anchors: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        repeats = sum(1 for known in anchors if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", known))
        anchors.add(f"{slug}-{repeats}" if repeats else slug)
    return anchors


def main() -> int:
    """Print what is broken."""
    broken = broken_links(_ROOT)
    for line in broken:
        print(line)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
