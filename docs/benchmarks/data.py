"""Real data of the benchmarks: `testdata/`, and larger sets of the same layout where `--data` or `MORPHGL_TEST_DATA` says."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HELP = "larger sets than those of testdata/, in the layout that testdata/README.md describes (default: $MORPHGL_TEST_DATA)"


def add_option(parser):
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("MORPHGL_TEST_DATA") or None, help=HELP)


def find(name, larger):
    """The file, or the common prefix of files, `name`; `None` where neither place has it."""
    places = [ROOT / "testdata"] + ([larger] if larger else [])
    return next((place / name for place in places if list(place.glob(f"{name}*"))), None)


def need(name, larger):
    """As `find`, but ends the program."""
    return find(name, larger) or sys.exit(f"{name} is not in testdata/; --data DIR or $MORPHGL_TEST_DATA says where it is")
