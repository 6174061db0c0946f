# shellcheck shell=bash
# What the launchers of the examples share; they source it. It starts the workers of a job as processes of this host, and
# leaves none behind.
#
#   launch_find PROGRAM BUILD_DIR      prints the folder with the built program
#   launch_meet WORLD_SIZE             picks where the workers meet
#   launch_start NAME COMMAND...       starts one worker; the first one leads
#   launch_is_count TEXT               whether this is a number of processes
#   launch_processes PROGRAM N FLAGS   all of a job whose workers are N processes of one program: RANK tells them apart
#   launch_wait                        waits for all; the exit status is the leader's, or that of another one that failed

launch_here=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)  # the launcher's folder
launch_example=$(basename "$launch_here")
launch_name=$launch_example/run

fail() { echo "$launch_name: $*" >&2; exit 2; }

# The folder of the launcher if it lies in a build, else that of the newest build of this source tree.
launch_find() {
  local program=$1 build=$2 folder newest
  local here=$launch_here example=$launch_example
  if [[ -n $build ]]; then
    for folder in "$build/examples/$example" "$build"; do
      [[ -x $folder/$program ]] && { echo "$folder"; return; }
    done
    fail "there is no $program in $build; build it with: cmake --build $build --target $program"
  fi
  [[ -x $here/$program ]] && { echo "$here"; return; }
  newest=$(ls -td "$here/../../build/examples/$example/$program" "$here"/../../build/*/examples/"$example"/"$program" \
           2>/dev/null | head -n 1)
  [[ -n $newest ]] || fail "$program is not built; build it (cmake --build BUILD --target $program) or pass --build-dir"
  dirname "$newest"
}

launch_port_is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Below the range that the system gives to outgoing connections.
launch_free_port() {
  local port
  for _ in {1..100}; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    launch_port_is_free "$port" && { echo "$port"; return; }
  done
  fail "found no free port between 20000 and 32000"
}

launch_meet() {
  export MASTER_ADDR=127.0.0.1 MASTER_PORT WORLD_SIZE=$1
  MASTER_PORT=${MASTER_PORT:-$(launch_free_port)} || exit 2
}

declare -A launch_running=()  # name by process id
launch_leader=

launch_stop() {
  local pid alive
  for pid in "${!launch_running[@]}"; do kill -TERM "$pid" 2>/dev/null; done
  for _ in {1..50}; do
    alive=0
    for pid in "${!launch_running[@]}"; do kill -0 "$pid" 2>/dev/null && alive=1; done
    ((alive)) || break
    sleep 0.1
  done
  for pid in "${!launch_running[@]}"; do kill -KILL "$pid" 2>/dev/null; done
  wait 2>/dev/null
}

# Background processes of a script ignore Ctrl-C; the traps end them.
launch_start() {
  local name=$1
  shift
  if [[ -z $launch_leader ]]; then
    trap 'trap - EXIT; launch_stop 2>/dev/null' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
  fi
  "$@" &
  launch_running[$!]=$name
  launch_leader=${launch_leader:-$!}
}

launch_wait() {
  local status=0 other_status=0 grace='' ended code name
  while ((${#launch_running[@]} > 0)); do
    ended=
    wait -n -p ended "${!launch_running[@]}"
    code=$?
    [[ -n $ended ]] || continue
    name=${launch_running[$ended]:-}
    unset "launch_running[$ended]"
    if [[ $ended == "$launch_leader" ]]; then
      status=$code
      if ((status == 2)); then break; fi  # a mistake in the flags: it has not joined
      # The others leave with the leader; one that has not met it yet would wait for it in vain.
      sleep 10 >/dev/null 2>&1 &
      grace=$!
      launch_running[$grace]=grace
    elif [[ $ended == "$grace" ]]; then
      break
    elif ((code != 0)); then
      echo "$launch_name: $name ended with status $code" >&2
      other_status=$code
    fi
    # Only the clock is left.
    if [[ -n $grace && ${#launch_running[@]} -eq 1 && -n ${launch_running[$grace]:-} ]]; then break; fi
  done
  if ((status != 0)); then exit "$status"; fi
  exit "$other_status"
}

launch_is_count() { [[ $1 =~ ^[0-9]{1,3}$ ]] && ((10#$1 > 0)); }

launch_processes() {
  local program=$1 size=$2 rank
  shift 2
  launch_meet "$size"
  for ((rank = 0; rank < size; ++rank)); do
    RANK=$rank launch_start "rank $rank" "$program" "$@"
  done
  launch_wait
}
