# Shared by the sbatch files of this folder, which source it. docs/slurm.md explains it.
# shellcheck shell=bash
#
# Variables that a site may set, in the environment of sbatch or at the top of an sbatch file:
#   ISOGCLR_HOME        this checkout                                   (default: where sbatch was called)
#   ISOGCLR_SETUP       file that is sourced before anything runs: modules, conda, a virtual environment
#                                                                       (default: $ISOGCLR_HOME/.venv/bin/activate)
#   ISOGCLR_PYTHON      interpreter                                     (default: python, after ISOGCLR_SETUP)
#   ISOGCLR_MODULE      module to run, for a wrapper of your own        (default: training.main)
#   ISOGCLR_WAIT        seconds that ranks may run on after the first one has ended          (default: 60)
#   ISOGCLR_NAME_WAIT   seconds to wait until the name of the first node resolves            (default: 60)
#   ISOGCLR_PORTS       where to look for a free port, FIRST-LAST       (default: 20000-39999)
#   ISOGCLR_SRUN        further options of srun, e.g. --container-image=…
#   MASTER_ADDR, MASTER_PORT    to choose them yourself

# Exit codes of the trainer.
STOPPED=75  # stopped on request, after a commit
DIVERGED=76 # loss or weights are not finite: the same command would do the same again

say() { echo "launch.sh: $*"; }

refuse() {
    echo "launch.sh: error: $*" >&2
    exit 2
}

# need VARIABLE WHAT: the variable must be set.
need() {
    [[ -n "${!1:-}" ]] || refuse "$1 is not set, expected $2: set it at the top of this file, or in the environment of sbatch"
}

# need_path VARIABLE WHAT: the variable must name something that is there.
need_path() {
    need "$1" "$2"
    [[ -e "${!1}" ]] || refuse "$1=${!1}: found nothing there, expected $2"
}

# Before anything runs: what a site must edit, and the environment. Only then is it sourced.
prepare() {
    [[ -n "${SLURM_JOB_ID:-}" ]] || refuse "found no Slurm job, expected one: submit this file with sbatch"
    need_path ISOGCLR_HOME "the isogclr checkout"
    : "${ISOGCLR_SETUP:=$ISOGCLR_HOME/.venv/bin/activate}"
    need_path ISOGCLR_SETUP "a file that sets up Python (the virtual environment of \`make setup\`, or your own)"
    set +u # activation scripts of others
    # shellcheck disable=SC1090
    source "$ISOGCLR_SETUP"
    set -u
    : "${ISOGCLR_PYTHON:=python}" "${ISOGCLR_MODULE:=training.main}" "${ISOGCLR_WAIT:=60}" "${ISOGCLR_NAME_WAIT:=60}"
    : "${ISOGCLR_PORTS:=20000-39999}" "${ISOGCLR_SRUN:=}"
    export ISOGCLR_NAME_WAIT # the ranks of other nodes resolve the name too
    command -v "$ISOGCLR_PYTHON" >/dev/null || refuse "ISOGCLR_PYTHON=$ISOGCLR_PYTHON: found no such program"
    export PYTHONPATH="$ISOGCLR_HOME/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
    export OMP_NUM_THREADS="${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}"
    # Since 22.05 srun does not take this over from sbatch.
    [[ -z "${SLURM_CPUS_PER_TASK:-}" ]] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
    "$ISOGCLR_PYTHON" - <<'PYTHON' || refuse "ISOGCLR_PYTHON=$ISOGCLR_PYTHON can not import what it needs (see above): check ISOGCLR_SETUP"
import importlib.util
missing = [name for name in ("torch", "open_clip", "open_clip_train", "isogclr", "training") if importlib.util.find_spec(name) is None]
raise SystemExit(f"missing: {', '.join(missing)}" if missing else 0)
PYTHON
}

# per_rank TOTAL WHAT: TOTAL divided by the number of tasks.
per_rank() {
    ((SLURM_NTASKS > 0 && $1 % SLURM_NTASKS == 0)) ||
        refuse "$2 is $1 but there are $SLURM_NTASKS tasks: expected a multiple; change $2, or --nodes and --ntasks-per-node"
    echo $(($1 / SLURM_NTASKS))
}

# The address of rank 0, which is on the first node, as is this script.
choose_address() {
    if [[ -z "${MASTER_ADDR:-}" ]] && ((SLURM_JOB_NUM_NODES == 1)); then
        export MASTER_ADDR=127.0.0.1
        return
    fi
    local name=${MASTER_ADDR:-} deadline address
    [[ -n "$name" ]] || name=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    deadline=$((SECONDS + ISOGCLR_NAME_WAIT))
    while ! getent hosts "$name" >/dev/null; do
        # Slurm may know an address where the name service knows no name.
        address=$(scontrol --oneliner show node "$name" 2>/dev/null | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p') || address=""
        if [[ -n "$address" && "$address" != "$name" ]] && getent hosts "$address" >/dev/null; then
            say "the name $name does not resolve; taking its address in slurm.conf, $address"
            name=$address
            break
        fi
        ((SECONDS < deadline)) ||
            refuse "the name of the first node, $name, did not resolve within $ISOGCLR_NAME_WAIT s, expected an address: let the nodes resolve each other's names, or set MASTER_ADDR"
        sleep 1
    done
    export MASTER_ADDR=$name
}

# A free port on this node. The search begins at a place that depends on the job, so that two jobs do not race.
choose_port() {
    local found
    found=$("$ISOGCLR_PYTHON" - "${MASTER_PORT:-$ISOGCLR_PORTS}" "$SLURM_JOB_ID" <<'PYTHON'
import socket, sys
first, _, last = sys.argv[1].partition("-")
ports = range(int(first), int(last or first) + 1)
start = int(sys.argv[2]) * 7 % len(ports)
for port in (*ports[start:], *ports[:start]):
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError:
            continue
    print(port)
    break
PYTHON
    ) || refuse "MASTER_PORT or ISOGCLR_PORTS is ${MASTER_PORT:-$ISOGCLR_PORTS}, expected a port or FIRST-LAST"
    [[ -n "$found" ]] || refuse "found no free port among ${MASTER_PORT:-$ISOGCLR_PORTS} on $(hostname), expected one: set ISOGCLR_PORTS or MASTER_PORT to others"
    export MASTER_PORT=$found
}

# Commits of the run, newest last.
generations() {
    ls -d "$1"/checkpoints/generations/generation-* 2>/dev/null || true
}

# train LOGS NAME ARGUMENTS…: run the trainer on all tasks; go on from the newest commit; requeue if there is a reason to.
train() {
    local run="$1/$2" before after code=0
    prepare
    choose_address
    choose_port
    before=$(generations "$run" | tail -n 1)
    say "job $SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1)): $SLURM_JOB_NUM_NODES nodes ($SLURM_JOB_NODELIST), $SLURM_NTASKS tasks, rank 0 at $MASTER_ADDR:$MASTER_PORT, ${before:-no commit yet}"
    # --wait, not --kill-on-bad-exit: a rank that was stopped exits with 75, and the others do so a moment later. A rank
    # that is killed leaves the others waiting in NCCL; this ends them.
    # shellcheck disable=SC2086
    srun --kill-on-bad-exit=0 --wait="$ISOGCLR_WAIT" --label $ISOGCLR_SRUN \
        "$ISOGCLR_PYTHON" -m "$ISOGCLR_MODULE" --logs "$1" --name "$2" --resume latest "${@:3}" || code=$?
    ((code != 0)) || return 0
    after=$(generations "$run" | tail -n 1)
    case $code in
    "$STOPPED") requeue "it was stopped on request, after a commit" ;;
    138 | 143) requeue "a signal (exit code $code) ended it before it could handle signals" ;;
    2) say "the command line was refused; not requeued" ;;
    "$DIVERGED") say "it has diverged; not requeued: its message says what to change" ;;
    *)
        if [[ "$after" != "$before" ]]; then
            requeue "it failed with exit code $code, after it had made progress ($after)"
        else
            say "it failed with exit code $code and has committed nothing since its start; not requeued: it would fail again"
        fi
        ;;
    esac
    exit "$code"
}

requeue() {
    say "requeue: $1"
    scontrol requeue "$SLURM_JOB_ID" || say "Slurm does not requeue it: submit it again; it goes on from the newest commit"
}
