# shellcheck shell=bash
# Sourced by whatever makes something that others rely on by its name. It is made beside its place, and gets its name when it is whole
# and on the disk; what is to go loses its name first. So what has its name is whole, at whatever moment somebody was killed.
. "$(dirname "${BASH_SOURCE[0]}")/places.sh"

# begin_partial FOLDER: a new folder in it, as `partial`, which is removed when the script ends. Whoever makes one holds its lock.
begin_partial() {
    mkdir -p "$1"
    remove_partials "$1"
    partial="$(mktemp -d "$1/partial.XXXXXX")"
    trap 'rm -rf "$partial"' EXIT
    exec 6<"$partial"
    flock 6
}

# What nobody holds is of somebody who was killed. Four hours: checkouts of earlier commits hold no lock.
remove_partials() {
    local old
    find "$1" -maxdepth 1 -name 'partial[.-]*' -mmin +240 -print0 | while read -r -d '' old; do
        (exec 6<"$old" && flock --nonblock 6 && rm -rf "$old") 2>/dev/null || true
    done
}

# take_turn FILE: one at a time; who comes while another one makes it waits for it, and then looks again whether it is there.
take_turn() {
    mkdir -p "$(dirname "$1")"
    exec 9>"$1"
    flock 9
}

# finish_partial PLACE. Two who made the same at once end with the folder of one of them.
finish_partial() {
    chmod 755 "$partial"
    sync --file-system "$partial"
    mv -T "$partial" "$1" 2>/dev/null || [ -d "$1" ]
}

# throw_away FOLDER... Somebody else may have been quicker.
throw_away() {
    local folder nameless
    for folder in "$@"; do
        nameless="$(mktemp -d "$(dirname "$folder")/partial.XXXXXX")"
        mv -T "$folder" "$nameless" 2>/dev/null || true
        rm -rf "$nameless"
    done
}

# keep_used CACHE FOLDER...: these are used now. What was last used a month ago is of an earlier state of the project, and goes.
keep_used() {
    local cache="$1" old
    touch "${@:2}" 2>/dev/null || true
    find "$cache" -maxdepth 1 -type d \( -name 'cluster-*' -o -name 'images-*' -o -name 'cargo-deny-*' \) -mtime +30 -print0 |
        while read -r -d '' old; do throw_away "$old"; done
}
