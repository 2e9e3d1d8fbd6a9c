#!/usr/bin/env bash
# Unpacks programs of one Debian suite, with every library they may ask for, into a folder. The machine's own packages are
# neither asked nor touched: the suite is found where the machine gets its own from.
# usage: suite.sh SUITE FOLDER PACKAGE...
set -euo pipefail

main() {
    apt="$(mktemp -d)"
    trap 'rm -rf "$apt"' EXIT
    mkdir -p "$apt"/{etc/apt.conf.d,etc/preferences.d,etc/trusted.gpg.d,lists/partial,archives/partial} "$FOLDER"
    : >"$apt/status"
    find_source >"$apt/etc/sources.list"
    quietly apt-get update
    local found wanted
    found="$(libraries "$@")"
    mapfile -t wanted <<<"$found"
    (cd "$apt/archives" && quietly apt-get download "$@" "${wanted[@]}")
    for package in "$apt"/archives/*.deb; do dpkg-deb --extract "$package" "$FOLDER"; done
}

# What follows the machine's own suite in its sources, for the suite wanted.
find_source() {
    local own files found
    own="$(. /etc/os-release && echo "${VERSION_CODENAME:-}")"
    found="$(find /etc/apt/sources.list /etc/apt/sources.list.d -name '*.list' -o -name '*.sources' 2>/dev/null || true)"
    mapfile -t files <<<"$found"
    awk -v own="$own" -v suite="$SUITE" -v keyring=/usr/share/keyrings/debian-archive-keyring.gpg '
        /^URIs:/ { uri = $2 }
        /^Suites:/ { for (i = 2; i <= NF; i++) if ($i == own) print "deb [signed-by=" keyring "]", uri, suite, "main" }
        /^deb / { line = $0; sub(/\[[^]]*\] */, "", line); split(line, word, " ")
                  if (word[3] == own) print "deb [signed-by=" keyring "]", word[2], suite, "main" }
    ' "${files[@]}" </dev/null | sort -u | grep . || {
        echo "no source of packages of $own is known here, so $SUITE cannot be found beside it" >&2
        return 1
    }
}

# All that these packages lean on, if it is a library.
libraries() {
    with_suite apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$@" |
        grep -E '^(lib|lua|zlib)' | sort -u
}

with_suite() {
    local command="$1"
    shift
    "$command" -o Dir::Etc="$apt/etc" -o Dir::Etc::Parts="$apt/etc/apt.conf.d" -o Dir::Etc::SourceList="$apt/etc/sources.list" \
        -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$apt/lists" -o Dir::State::Status="$apt/status" \
        -o Dir::Cache="$apt" -o Dir::Cache::Archives="$apt/archives" -o APT::Sandbox::User=root -o Acquire::Retries=3 \
        -o APT::Get::List-Cleanup=false -o Acquire::Languages=none "$@"
}

quietly() {
    if ! with_suite "$@" >"$apt/log" 2>&1; then
        echo "$1 $2 failed for suite $SUITE:" >&2
        tail -n 5 "$apt/log" >&2
        return 1
    fi
}

SUITE="$1" FOLDER="$2"
shift 2
main "$@"
