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

# finish_partial PLACE. Two who made the same at once end with the folder of one of them; what lies there and is not whole any more goes.
finish_partial() {
    manifest "$partial" >"$partial/manifest"
    chmod 755 "$partial"
    sync --file-system "$partial"
    if [ -e "$1" ] && ! is_whole "$1"; then throw_away "$1"; fi
    mv -T "$partial" "$1" 2>/dev/null || is_whole "$1" || {
        echo "$1 is not as it was made, and cannot be replaced" >&2
        return 1
    }
}

# manifest FOLDER: every file of it, and its size.
manifest() {
    (cd "$1" && find . -path ./manifest -o -type f -printf '%s %P\n' -o ! -type d -printf '%y %P\n' | LC_ALL=C sort)
}

# is_whole FOLDER: as it was when it got its name. Whoever tidies up a cache, or a disk that fails, takes single files of it.
is_whole() { [ -s "$1/manifest" ] && manifest "$1" 2>/dev/null | cmp --quiet "$1/manifest"; }

# throw_away FOLDER... Somebody else may have been quicker. Where nothing can be renamed, as in a cache that is only read, it stays.
throw_away() {
    local folder nameless
    for folder in "$@"; do
        nameless="$(mktemp -d "$(dirname "$folder")/partial.XXXXXX" 2>/dev/null)" || continue
        mv -T "$folder" "$nameless" 2>/dev/null || true
        rm -rf "$nameless" 2>/dev/null || true
    done
}

# cache_for NAME: the cache, if NAME lies there whole or can be put there; or else a folder of the checkout that is used like it, as one that can
# only be read shall cost no more than time.
cache_for() {
    local cache="${KUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kun}" own
    own="$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")/target/cache"
    if ! is_whole "$cache/$1" && ! can_be_written "$cache"; then
        is_whole "$own/$1" || echo "the cache $cache cannot be written; $1 is made for this checkout alone, in $own" >&2
        cache="$own"
    fi
    echo "$cache"
}

# What a run uses of the cache it has as links of its own, in its checkout: the cache may be deleted meanwhile.
# linked NAME: the folder of these links; 1: it is not there, or not whole.
linked() {
    local here
    here="$(links)/$1"
    is_whole "$here" && echo "$here"
}

# link_here FOLDER: makes them, of a folder of the cache, and prints where they are. Where the cache is on another disk, they are copies.
link_here() {
    local here name
    here="$(links)" name="$(basename "$1")"
    take_turn "$here.lock"
    if ! linked "$name" >/dev/null; then
        begin_partial "$here"
        cp --archive --link "$1/." "$partial" 2>/dev/null || cp --archive --force "$1/." "$partial"
        # It is written anew, and this is a link to that of the cache.
        rm -f "$partial/manifest"
        finish_partial "$here/$name"
    fi
    echo "$here/$name"
}

links() { echo "$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")/target/used"; }

# By root, too, and however it is forbidden.
can_be_written() {
    local tried
    mkdir -p "$1" 2>/dev/null && tried="$(mktemp -d "$1/partial.XXXXXX" 2>/dev/null)" && rmdir "$tried"
}

# Who compiles, and which library of C what is compiled is linked with.
toolchain() {
    rustc -vV
    # Whatever language the caller reads.
    LC_ALL=C "${CC:-cc}" --version 2>&1 || true
    LC_ALL=C ldd --version 2>&1 || true
}

# keep_used CACHE FOLDER...: these are used now; to be called once all that a run uses is. What was last used a month ago is of an earlier state of the project, and goes.
keep_used() {
    local cache="$1" old
    touch --no-create "${@:2}" 2>/dev/null || true
    find "$cache" -maxdepth 1 -type d \( -name 'cluster-*' -o -name 'images-*' -o -name 'cargo-deny-*' \) -mtime +30 -print0 |
        while read -r -d '' old; do throw_away "$old"; done
}
