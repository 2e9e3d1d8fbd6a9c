# shellcheck shell=bash
# Sourced by the scripts of the cluster: its control groups, of version 1. They lie below the group of whoever starts it, in
# every hierarchy, and STATE/groups says where.

# groups_of PROCESS|self: its group in each hierarchy, one folder a line. In a container the hierarchy may begin at that group.
groups_of() {
    local controllers path folder
    # A copy: the file changes while its reader is moved.
    while IFS=: read -r _ controllers path; do
        folder="/sys/fs/cgroup/${controllers#name=}"
        [ -n "$controllers" ] && [ -d "$folder" ] || continue
        if [ -d "$folder${path%/}" ]; then echo "$folder${path%/}"; else echo "$folder"; fi
    done <<<"$(cat "/proc/$1/cgroup")"
}

# make_group GROUP. A new cpuset takes nobody in before it has processors and memory of its own.
make_group() {
    local folder file
    while read -r folder; do
        mkdir -p "$folder/$1"
        for file in cpuset.cpus cpuset.mems; do
            if [ -e "$folder/$file" ]; then cat "$(dirname "$folder/$1")/$file" >"$folder/$1/$file"; fi
        done
    done <"$STATE/groups"
}

# weigh_as_machine GROUP: as much as so many processes that run at once, for it stands for a machine. A group weighs as one thread by default,
# whatever is in it: beside a busy control plane, or beside other tests, all pods of a node would share what one thread has.
weigh_as_machine() {
    local folder
    while read -r folder; do
        if [ -e "$folder/$1/cpu.shares" ]; then echo $((1024 * 8)) >"$folder/$1/cpu.shares"; fi
    done <"$STATE/groups"
}

# enter_group GROUP: moves this very shell, which may be a subshell.
enter_group() {
    local folder
    while read -r folder; do echo "$BASHPID" >"$folder/$1/cgroup.procs"; done <"$STATE/groups"
}

# remove_group GROUP and all below it, as soon as nobody is in them; 1 if somebody still is.
remove_group() {
    local folder left=0
    while read -r folder; do
        [ -d "$folder/$1" ] || continue
        find "$folder/$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
        if [ -d "$folder/$1" ]; then left=1; fi
    done <"$STATE/groups"
    return "$left"
}

# set_freezer GROUP FROZEN|THAWED: every process in it at once.
set_freezer() {
    local folder
    while read -r folder; do
        if [ -e "$folder/$1/freezer.state" ]; then echo "$2" >"$folder/$1/freezer.state"; fi
    done <"$STATE/groups"
}

# mount_own_groups: /sys as the namespaces of this process see it.
mount_own_groups() {
    local hierarchies
    hierarchies="$(cut -d: -f2 /proc/self/cgroup | grep . | while read -r name; do
        if [ -d "/sys/fs/cgroup/${name#name=}" ]; then echo "$name"; fi
    done)"
    mount -t sysfs sysfs /sys
    mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
    local name
    for name in $hierarchies; do
        mkdir -p "/sys/fs/cgroup/${name#name=}"
        case "$name" in
        name=*) mount -t cgroup -o "none,$name" cgroup "/sys/fs/cgroup/${name#name=}" ;;
        *) mount -t cgroup -o "$name" cgroup "/sys/fs/cgroup/$name" ;;
        esac
    done
}
