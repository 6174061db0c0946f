# shellcheck shell=sh disable=SC2034,SC2154
# For tools/demo and tools/test, which have this in them: says what they are going to do and how long it takes here.

# say_plan NAME FOLDER T GROUP...
#
# NAME's build in FOLDER takes T times what the compiler takes for one file with torch/torch.h (tools/build_cost measures
# it; 0: not known); it needs the packages of the groups. Sets NINJA_STATUS, and `batches` to the flag of CMake with which a build from
# scratch compiles several sources at once. `jobs` is how many compilers run at once.
say_plan() {
  plan_name=$1
  plan_folder=$2
  plan_units=$3
  shift 3
  plan_missing=$(tools/install-packages --missing "$@" | wc -w)
  [ "$plan_missing" = 0 ] || echo "== $plan_name: $plan_missing Debian packages are missing and will be installed: $*"
  batches=
  if [ -f "$plan_folder/CMakeCache.txt" ]; then
    echo "== $plan_name: $plan_folder is there: what has changed will be compiled"
    return 0
  fi
  batches=-DCMAKE_UNITY_BUILD=ON
  [ "$plan_units" != 0 ] || return 0
  # A loop of awk's, which is on each Debian, tells the speed of the processor: a compiler may still be missing.
  plan_begun=$(date +%s%N)
  awk 'BEGIN { for (i = 0; i < 10000000; i++) sum += i % 7 }'
  plan_took_ms=$((($(date +%s%N) - plan_begun) / 1000000))
  plan_seconds=$((plan_units * plan_took_ms * SINEW_PLAN_RATIO / 1000 / jobs))
  echo "== $plan_name: compiling takes about $(((plan_seconds + 59) / 60)) minutes here, with $jobs at once (SINEW_JOBS)"
  NINJA_STATUS="[%f/%t, %e s of about $plan_seconds] "
  export NINJA_STATUS
}
# How many of that loop one file with torch/torch.h takes.
SINEW_PLAN_RATIO=25
