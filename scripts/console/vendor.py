#!/usr/bin/env python3
"""Fetches the libraries of the console from npm into services/admin/console/vendor.

    vendor.py            fetch the versions that package.json lists, and write them
    vendor.py --check    fetch them and fail if a file of the repository differs

Browsers resolve no package names, so imports of packages become imports of the files beside. versions.json lists each package with its
version, licence, checksum and files.
"""

import argparse
import base64
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parents[2] / "services/admin/console/vendor"
VERSIONS = json.loads((Path(__file__).parent / "package.json").read_text(encoding="utf-8"))["dependencies"]
# The file of the package behind each file here.
PACKAGES = {
    "preact": {"preact.js": "dist/preact.mjs", "preact-hooks.js": "hooks/dist/hooks.mjs"},
    "htm": {"htm.js": "dist/htm.mjs"},
    "@preact/signals-core": {"signals-core.js": "dist/signals-core.mjs"},
    "@preact/signals": {"signals.js": "dist/signals.mjs"},
    "uplot": {"uplot.js": "dist/uPlot.iife.min.js", "uplot.css": "dist/uPlot.min.css"},
}
# What modules import, by the file here. The types are those of the package.
IMPORTS = {"preact": "preact.js", "preact/hooks": "preact-hooks.js", "htm": "htm.js", "@preact/signals-core": "signals-core.js", "@preact/signals": "signals.js", "uplot": "uplot.js"}


def fetched(package, version, folder):
    """The archive of a package and its checksum as npm lists it."""
    packed = subprocess.run(["npm", "pack", "--json", f"{package}@{version}"], cwd=folder, check=True, capture_output=True, text=True)
    [found] = json.loads(packed.stdout)
    archive = folder / found["filename"].replace("@", "").replace("/", "-")
    digest = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != found["integrity"]:
        sys.exit(f"{package}: the archive does not have the checksum that npm lists")
    return archive, digest


def as_module(name, text):
    """The text of a script as a module that a browser loads without a build."""
    text = re.sub(r"\n?//# sourceMappingURL=.*", "", text)
    text = re.sub(r'(from|import)"([^".][^"]*)"', lambda found: f'{found[1]}"./{IMPORTS[found[2]]}"', text)
    return text.rstrip() + ("\nexport default uPlot;\n" if name == "uplot.js" else "\n")


def types_of(module):
    """Declares the types of a module for the type check; only preact's and the signals' modules have no default export."""
    default = "" if module.startswith(("preact", "@preact")) else f'export {{ default }} from "{module}";\n'
    return f'export * from "{module}";\n{default}'


def vendored():
    """Every file of the folder, by name."""
    files, versions = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for package, sources in PACKAGES.items():
            version = VERSIONS[package]
            archive, digest = fetched(package, version, Path(folder))
            with tarfile.open(archive) as opened:
                def text(path):
                    return opened.extractfile(f"package/{path}").read().decode()
                licence = next(name for name in opened.getnames() if re.fullmatch(r"package/LICEN[CS]E(\.\w+)?", name)).removeprefix("package/")
                licence_file = f"LICENSE-{package.removeprefix('@').replace('/', '-')}"
                files[licence_file] = text(licence)
                for name, source in sources.items():
                    files[name] = as_module(name, text(source)) if name.endswith(".js") else text(source)
                listed = {name: hashlib.sha256(files[name].encode()).hexdigest() for name in sources}
                versions.append({"package": package, "version": version, "licence": json.loads(text("package.json"))["license"], "licence_file": licence_file,
                                 "archive": digest, "files": listed})
    for module, name in IMPORTS.items():
        files[name.replace(".js", ".d.ts")] = types_of(module)
    files["versions.json"] = json.dumps(versions, indent=2) + "\n"
    return files


def main():
    parser = argparse.ArgumentParser(description="Fetch the libraries of the console from npm.")
    parser.add_argument("--check", action="store_true", help="fail if a file of the repository differs")
    check = parser.parse_args().check
    files = vendored()
    if check:
        present = {path.name: path.read_text(encoding="utf-8") for path in VENDOR.iterdir()}
        different = sorted(name for name in files.keys() | present.keys() if files.get(name) != present.get(name))
        if different:
            sys.exit(f"{VENDOR}: differs from npm: {', '.join(different)}; run scripts/console/vendor.py")
        return
    VENDOR.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (VENDOR / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
