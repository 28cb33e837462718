"""A results folder as one file, to be archived and cited.

In:      a results folder.
Out:     a zip with a manifest of hashes; the same files give the same bytes.
"""

import hashlib
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from rlbench.errors import InputError
from rlbench.records import RUN_FACTS, replaced_whole

MANIFEST = "SHA256SUMS"
LEFT_OUT = {"state", "partial", "logs", ".snakemake"}
"""Folders that say how a folder was made, not what came out."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of every file, so that the bytes depend on nothing else; the earliest that a zip can say."""


def contents(folder: Path) -> list[Path]:
    """The files of a results folder that are exported, relative to it, sorted.

    Raises:
        InputError: there is no such folder, or no finished run in it.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; must be that of a benchmark")
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    kept = [p for p in files if p.parts[0] not in LEFT_OUT and p.suffix != ".partial"]
    if not any(path.name == RUN_FACTS for path in kept):
        raise InputError(f"{folder}: no finished run in it; run the workflow, then export")
    return sorted(path for path in kept if str(path) != MANIFEST)


@dataclass(frozen=True, slots=True)
class Archive:
    """What was packed."""

    files: int
    runs: int
    """Finished learning runs among them."""
    sha256: str
    """Of the zip."""


def export(folder: Path, target: Path) -> Archive:
    """Write the zip, whole or not at all.

    Raises:
        InputError: there is nothing to export, or the zip would be in the folder itself.
    """
    if target.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"--output: got {target}, inside {folder}; must be outside it")
    files = contents(folder)
    top = folder.resolve().name
    with replaced_whole(target) as stream, zipfile.ZipFile(stream, "w") as archive:
        lines = []
        for path in files:
            with (folder / path).open("rb") as source:
                digest = hashlib.file_digest(source, "sha256").hexdigest()
                source.seek(0)
                entry = _entry(f"{top}/{path.as_posix()}")
                with archive.open(entry, "w", force_zip64=True) as sink:
                    shutil.copyfileobj(source, sink)
            lines.append(f"{digest}  {path.as_posix()}\n")
        archive.writestr(_entry(f"{top}/{MANIFEST}"), "".join(lines))
    runs = sum(path.parts[0] == "runs" and path.name == RUN_FACTS for path in files)
    with target.open("rb") as stream:
        return Archive(len(files), runs, hashlib.file_digest(stream, "sha256").hexdigest())


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
