#!/usr/bin/env bash
# Benchmarks on a GPU host, one after the other, each within the time that is left; what they write goes to $OUT (or the folder bench-out):
#   [LIMIT_SECONDS=560] [CHECKOUT=.kb/KernelBench] [DEVICES=cuda:0,cuda:1] bench/sitting.sh STEP[=SECONDS] ...
# Steps: bytecode, sweep, kernels, corpus, verdict, host, llm, landscapes, confirm, handles, sides, calibration, profiles, triton, recurrent, rival, first, accept-everyday, clock, gpu-tests (below, what each does).
# Results that bench/results holds are gone on with. FORMS=all, ONLY=REGEX (corpus), CORPUS (further options), SETS, SHARE, MORE (sweep, kernels, calibration), SHUFFLE= (sweep, in the order of the sets), EXAMPLE (host), TASK and WAYS (sides) say more.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
out=${OUT:-bench-out} checkout=${CHECKOUT:-.kb/KernelBench} devices=${DEVICES:-cuda:0} limit=${LIMIT_SECONDS:-560}
python=${PYTHON:-python3} device=${devices%%,*} results=bench/results
mkdir -p "$out"
(($#)) || { sed -n '2,5s/^# //p' "$0"; exit 2; }

# A result of the repository, where the bench can go on with it.
kept() { [[ -e $out/$1 || ! -e $results/$1 ]] || cp "$results/$1" "$out/$1"; }
# Once for each name in DEVICES, side by side: `each COMMAND` has $device, $shard and $part. Names may repeat: benches that share a GPU take turns with
# it. A judge keeps to the processors of its GPU by itself.
each() {
  local -a all; IFS=, read -ra all <<<"$devices"
  local number=0 pids=() status=0 one pid
  for one in "${all[@]}"; do device=$one shard=$number/${#all[@]} part=$number "$@" & pids+=($!); ((++number)); done
  for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
  return $status
}

# Interpreters without byte code compile a thousand modules in each process: all at once here, on all processors.
bytecode() {
  local folders; folders=$("$python" -c 'import importlib.util as u
for name in ("torch", "triton", "sympy", "numpy", "mpmath"):
    spec = u.find_spec(name)
    if spec: print(*spec.submodule_search_locations)')
  "$python" -m compileall -q -j "$(nproc)" $folders
}
# Builds and torch.compile's helpers, most of a run's time, go on while another run measures, on processors where nothing is timed (STITCH_STILL).
# KernelBench with the built-in compiler, on from START (a folder of an earlier sitting), from an earlier sitting in the same $OUT, whose interrupted runs
# go on, or from the results here. sweep.tar.gz holds the folder for the next START and for `python -m bench.sweep tables FOLDER`.
sweep() {
  local start=${START:-}
  [[ -n $start ]] || start=$(mktemp -d)
  if [[ -z ${START:-} && -e $out/sweep.tar.gz ]]; then
    tar -xzf "$out/sweep.tar.gz" -C "$start" && start=$start/sweep
  elif [[ -z ${START:-} && -e $results/kernelbench-h200.json ]]; then
    cp "$results/kernelbench-h200.json" "$start/kernelbench.json"
    cp "$results/kernelbench-h200-programs.tar.gz" "$start/programs.tar.gz"
  fi
  STITCH_STILL=${STITCH_STILL-device} "$python" -m bench.sweep run "$checkout" --devices "$devices" --keep "$out/sweep" --start "$start" --sets "${SETS:-level2,level1,level3,level3-bf16}" \
    ${SHUFFLE---shuffle} --share "${SHARE:-3}" --again "${AGAIN:-failed,missing,flagged}" --task-seconds 1800 --budget-candidates 3 --limit-seconds "$left" ${MORE:-}
  local status=$?
  tar -czf "$out/sweep.tar.gz" -C "$out" sweep && rm -rf "$out/sweep"
  return $status
}
# Printed programs of level 1 beside eager; PROGRAMS and LIBRARIES as bench/notes/2026-11-26-commands.md makes them.
kernels() {
  kept level1-kernels-h200.json
  "$python" bench/level1_kernels.py run "$checkout" "${PROGRAMS:-.prog/after}" --libraries "${LIBRARIES:-.prog/lib}" --device "$device" \
    --limit-seconds "$left" --out "$out/level1-kernels-h200.json" ${MORE:-}
}
corpus() { each one_corpus; }
one_corpus() {
  "$python" bench/corpus.py --device "$device" --shard "$shard" --forms "${FORMS:-short}" ${ONLY:+--only "$ONLY"} --resume --limit-seconds "$left" \
    --out "$out/corpus-$part.json" ${CORPUS:-}
}
verdict() {
  "$python" bench/time_to_verdict.py --device "$device" --kernelbench "$checkout" --repeats "${REPEATS:-1}" --out "$out/verifier-time-to-verdict-h200.json"
}
host() { "$python" bench/one_host.py --device "$device" --example "${EXAMPLE:-rms_norm}" --limit-seconds "$left" --out "$out/one-host-${EXAMPLE:-rms_norm}-h200.json"; }
llm() { kept one-host-llm-h200.json; "$python" bench/one_host_llm.py --device "$device" --limit-seconds "$left" --out "$out/one-host-llm-h200.json"; }
# Status 3 where something is left; what was measured comes back in a part a GPU. START: parts of an earlier sitting. LIBRARIES: a folder DIR of
# `landscapes.py --facts ... --compile-only`, whose kernels are taken; FACTS: the same file.
landscapes() { each one_landscape --limit-seconds "$left"; }
confirm() { each one_landscape --only-confirm --confirm-seconds "$left"; }
one_landscape() {
  local kept=.data/landscapes
  mkdir -p "$kept/data-$part"
  [[ -z ${LIBRARIES:-} || -e $kept/data-$part/landscapes ]] || ln -s "$(realpath "$LIBRARIES")/data-0/landscapes" "$kept/data-$part/landscapes"
  [[ -z ${START:-} || -e $kept/part-$part.json ]] || cp "$START/part-$part.json" "$kept"
  "$python" bench/landscapes.py --device "$device" --shard "$shard" --keep "$kept" ${FACTS:+--facts "$FACTS"} "$@"
  local status=$?
  cp "$kept/part-$part.json" "$out"
  return $status
}
handles() {
  local status=0
  "$python" bench/ipc_handles.py --device "${device#*:}" --limit-seconds $((left / 2)) --out "$out/verifier-ipc-handles-h200.json" || status=$?
  "$python" bench/ipc_handles.py --device "${device#*:}" --limit-seconds $((left / 2)) --shared --out "$out/verifier-ipc-handles-shared-h200.json" || status=$?
  return $status
}
sides() { "$python" bench/sides.py --device "$device" --task "${TASK:-small}" --beside 8 ${WAYS:+--ways "$WAYS"} --out "$out/verifier-sides-${TASK:-small}.json"; }
calibration() {
  local host=${HOST_DATA:-$(mktemp -d)}  # one calibration of the host for all, made anew in each sitting
  each one_calibration
}
one_calibration() {
  "$python" bench/calibration.py "$checkout" --device "$device" --shard "$shard" --resume --known "$results/verifier-calibration-h200.json" \
    --host "$host" --timing-seconds "${TIMING_SECONDS:-8}" --limit-seconds "$left" --out "$out/calibration-$part.json" ${MORE:-}
}
profiles() { each one_profile; }
one_profile() {
  "$python" bench/profile_kernelbench.py "$checkout" --device "$device" --shard $((part + 1))/${shard#*/} --limit-seconds "$left" --out "$out/profiles-$part.json"
}
triton() { each one_triton; }
one_triton() { "$python" -m bench.in_triton run "$checkout" --device "$device" --shard "$shard" --keep "$out/triton" --limit-seconds "$left"; }
recurrent() {
  kept recurrent-h200.json
  "$python" bench/recurrent.py run --device "$device" --limit-seconds "$left" --out "$out/recurrent-h200.json"
}
# Today's programs of 30 KernelBench tasks against the stored ones. Where DEVICES names a GPU twice, one pair is built while the other is timed.
# MORE: --tier full, --again slower,failed.
rival() {
  kept rival-h100.json; kept rival-h100-programs.tar.gz
  STITCH_STILL=${STITCH_STILL-device} "$python" bench/rival.py "$checkout" --devices "$devices" --resume --limit-seconds "$left" --out "$out/rival-h100.json" ${MORE:-}
}
# The first faster program on the everyday suite. MORE: --count N.
first() {
  kept first-faster-everyday-h100.json
  "$python" bench/first_faster.py --sets everyday --winner fastest --devices "$devices" --begin-seconds "${BEGIN:-40}" --task-seconds 200 --resume \
    --limit-seconds "$left" --out "$out/first-faster-everyday-h100.json" ${MORE:-}
}
# KernelBench's own evaluation of the everyday suite's programs, correctness alone.
accept-everyday() {
  kept everyday-accepted-h100.json
  "$python" -m bench.everyday accept "$checkout" --devices "$devices" --resume --limit-seconds "$left" --out "$out/everyday-accepted-h100.json" ${MORE:-}
}
# The verifier's clock beside plain loops, for 30 stored KernelBench programs.
clock() {
  kept verifier-clock-kernelbench-h100.json
  "$python" bench/clock_beside_loops.py --kernelbench "$checkout" --devices "$devices" --resume --limit-seconds "$left" \
    --out "$out/verifier-clock-kernelbench-h100.json" ${MORE:-}
}
gpu-tests() { OUT=$out LIMIT_SECONDS=$left tests/gpu/session.sh; }

status=0
for step; do
  name=${step%%=*}
  if [[ $(type -t "$name") != function || " kept each " == *" $name "* || $name == one_* ]]; then
    echo "sitting.sh: there is no step $name; see the head of bench/sitting.sh" >&2
    exit 2
  fi
done
for step; do
  name=${step%%=*} left=$((limit - SECONDS - 10)) begin=$SECONDS
  [[ $step == *=* ]] && ((${step#*=} < left)) && left=${step#*=}
  if ((left < 20)); then echo "== $name: not begun, the time is up"; status=3; continue; fi
  echo "== $name, at most $left s"
  "$name" >"$out/$name.log" 2>&1
  ended=$?
  ((ended)) && status=$ended
  echo "   status $ended after $((SECONDS - begin)) s"
  tail -n "${LINES_SHOWN:-12}" "$out/$name.log" | cut -c1-300
done
exit $status
