#!/usr/bin/env bash
# Everything that needs a GPU, in one call of a few minutes, with its logs in $OUT (or the current folder):  tests/gpu/session.sh
set -uo pipefail
out=${OUT:-.}; export DATA_DIR=${DATA_DIR:-/tmp/stitchwork-data} PYTHONUNBUFFERED=1
sources=$(mktemp -d)
python3 - "$sources" <<'PY'
import sys
sys.path[:0] = ["tests/gpu", "."]
import programs
for name in ("SOFTMAX", "SOFTMAX_PROGRAM", "NORM", "NORM_PROGRAM"):
    open(f"{sys.argv[1]}/{name.lower()}.py", "w").write(getattr(programs, name))
PY
step() { local name=$1; shift; echo "== $name"; local begin=$SECONDS; timeout 200 "$@" >"$out/$name.log" 2>&1; echo "   status $? after $((SECONDS - begin)) s"; tail -n "${LINES_SHOWN:-12}" "$out/$name.log" | cut -c1-400; }
LINES_SHOWN=60 step doctor python3 -m verifier doctor
LINES_SHOWN=30 step check python3 -m verifier check "$sources/softmax.py" "$sources/softmax_program.py" --device cuda:0
step check-json python3 -m verifier check "$sources/softmax.py" "$sources/softmax_program.py" --device cuda:0 --json
LINES_SHOWN=8 step profile python3 -m verifier profile "$sources/softmax.py" "$sources/softmax_program.py" --device cuda:0 --timeline "$out/softmax.timeline"
LINES_SHOWN=40 step tests python3 -m pytest -q -p no:cacheprovider tests/gpu
