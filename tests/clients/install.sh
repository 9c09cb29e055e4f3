#!/bin/sh
# Install what tests/clients drives into the folder named first; nothing is done twice.
# PYTHON_AIDER: an interpreter from 3.10 to 3.12 for aider; without any, aider is left out.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
into=$1
mkdir -p "$into"

venv() {
    name=$1 python=$2 wanted="$here/requirements-$1.txt"
    cmp -s "$wanted" "$into/$name/.installed" && return
    "$python" -m venv --clear "$into/$name"
    "$into/$name/bin/python" -m pip install -q -r "$wanted"
    cp "$wanted" "$into/$name/.installed"
}

venv libs "${PYTHON:-python3}"

suits() {
    "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' 2>/dev/null
}

older=
for each in ${PYTHON_AIDER:-} python3.12 python3.11 python3.10; do
    # A version manager may have the name and no such Python.
    if suits "$each"; then older=$each && break; fi
done
if [ -n "$older" ]; then
    venv aider "$older"
else
    echo "clients: no Python 3.10 to 3.12 for aider; it is left out" >&2
fi

if command -v npm >/dev/null; then
    cmp -s "$here/package.json" "$into/npm/.installed" && exit
    mkdir -p "$into/npm"
    cp "$here/package.json" "$into/npm/"
    (cd "$into/npm" && npm install --no-audit --no-fund --no-package-lock --loglevel=error)
    # npm may hold install scripts back; this one only puts the program in its place.
    (cd "$into/npm/node_modules/@anthropic-ai/claude-code" && node install.cjs)
    cp "$here/package.json" "$into/npm/.installed"
else
    echo "clients: no npm; the programs from npm are left out" >&2
fi
