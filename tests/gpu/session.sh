#!/usr/bin/env bash
# Everything that needs a GPU, with its logs in $OUT (or the current folder):  [LIMIT_SECONDS=560] [STEP_SECONDS=240] tests/gpu/session.sh [STEP ...]
# A step that there is no time left for is named, and made by a further call:  tests/gpu/session.sh test_knobs_cuda test_policies_cuda
set -uo pipefail
out=${OUT:-.}; export DATA_DIR=${DATA_DIR:-/tmp/stitchwork-data} PYTHONUNBUFFERED=1
limit=${LIMIT_SECONDS:-560} step_limit=${STEP_SECONDS:-240} wanted=" $* "
sources=$(mktemp -d) failed=0
python3 - "$sources" <<'PY'
import sys
sys.path[:0] = ["tests/gpu", "."]
import programs
for name in ("SOFTMAX", "SOFTMAX_PROGRAM", "NORM", "NORM_PROGRAM"):
    open(f"{sys.argv[1]}/{name.lower()}.py", "w").write(getattr(programs, name))
PY
step() {
  local name=$1 begin=$SECONDS; shift
  [[ $wanted == "  " || $wanted == *" $name "* ]] || return 0
  local left=$((limit - SECONDS))
  if ((left < 20)); then echo "== $name: not begun, the time is up"; failed=3; return; fi
  echo "== $name"
  timeout $((left < step_limit ? left : step_limit)) "$@" >"$out/$name.log" 2>&1
  local status=$?
  ((status)) && failed=$status
  echo "   status $status after $((SECONDS - begin)) s"
  tail -n "${LINES_SHOWN:-12}" "$out/$name.log" | cut -c1-400
}
LINES_SHOWN=60 step doctor python3 -m verifier doctor
LINES_SHOWN=30 step check python3 -m verifier check "$sources/softmax.py" "$sources/softmax_program.py" --device cuda:0
step check-json python3 -m verifier check "$sources/softmax.py" "$sources/softmax_program.py" --device cuda:0 --json
LINES_SHOWN=8 step profile python3 -m verifier profile "$sources/softmax.py" "$sources/softmax_program.py" --device cuda:0 --timeline "$out/softmax.timeline"
for file in tests/gpu/test_*.py; do
  # The fixtures of tests/conftest.py need a database, which a GPU host may lack and these tests do not use.
  LINES_SHOWN=40 step "$(basename "$file" .py)" python3 -m pytest -q -p no:cacheprovider --confcutdir=tests/gpu "$file"
done
exit $failed
