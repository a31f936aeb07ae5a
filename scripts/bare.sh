# A bare Debian 12 in a folder, for scripts that try what users do. They set `root`, where it is or
# will be, and `folder`, for what is said while it is made.
#
# Where packages come from is taken from this machine: the sources and certificates of apt, the
# configuration of pip, npm's registry, and Node itself, which Debian 12 has too old.

say() { printf 'bare: %s\n' "$*" >&2; }
fail() { say "$1"; shift; for line in "$@"; do printf '      %s\n' "$line" >&2; done; exit 1; }

[ "$(id -u)" = 0 ] || fail "making a root folder needs root"
command -v debootstrap >/dev/null || fail "debootstrap is missing" "apt-get install debootstrap"
registry=$(npm config get registry 2>/dev/null || true)

# inside WORDS...: runs in the bare Debian, with its own mounts and processes, which end with it.
inside() {
    registry=$registry unshare --mount --pid --fork --kill-child --propagation private sh -euc '
        root=$1; shift
        mount --bind "$root" "$root"
        cd "$root"
        mount --rbind /dev dev
        mount --rbind /sys sys
        mount -t proc proc proc
        mount -t tmpfs tmpfs run
        mkdir run/lock
        # A mere chroot may not make namespaces, which the engines need.
        pivot_root . .
        umount -l .
        exec /usr/bin/env -C / -i HOME=/root LANG=C.UTF-8 npm_config_registry="$registry" \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
    ' sh "$root" "$@"
}

# This machine's Debian archive, as apt knows it.
archive() {
    apt-get --print-uris update 2>/dev/null \
        | sed -n "s#^'\(.*\)/dists/bookworm/InRelease'.*#\1#p" | head -n 1
}

copy_if_there() {
    local into
    into=$root$(dirname "$1")
    if [ -e "$1" ]; then mkdir -p "$into" && cp -rL "$1" "$into/"; fi
}

make_root() {
    local uri
    uri=$(archive)
    [ -n "$uri" ] || fail "apt's configuration names no archive of Debian 12"
    say "making a bare Debian 12 in $root"
    rm -rf "$root.new"
    debootstrap --variant=minbase bookworm "$root.new" "$uri" >"$folder/debootstrap.log" 2>&1 \
        || fail "debootstrap failed" "see $folder/debootstrap.log"
    mv "$root.new" "$root"
    rm -f "$root/etc/apt/sources.list"
    local path
    for path in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d \
        /etc/resolv.conf /etc/pip.conf /usr/local/share/ca-certificates; do
        copy_if_there "$path"
    done
    say "installing what the guide says is needed first: python3, make, git"
    inside sh -euc 'apt-get update && apt-get install -y --no-install-recommends \
        python3 make git ca-certificates' >"$folder/first.log" 2>&1 </dev/null \
        || fail "apt-get failed in $root" "see $folder/first.log"
    inside useradd --create-home someone
}

# The tests and the dashboard want a newer Node than that of Debian 12.
copy_node() {
    local into=$root/usr/local
    if [ -e "$into/bin/npx" ]; then return; fi
    command -v npm >/dev/null || fail "Node 20 with npm is needed, and this machine has none to copy"
    say "copying node $(node --version) of this machine"
    mkdir -p "$into/bin" "$into/lib/node_modules" "$into/etc"
    cp "$(readlink -f "$(command -v node)")" "$into/bin/node"
    cp -r "$(npm root -g)/npm" "$into/lib/node_modules/"
    cp "$(npm config get globalconfig)" "$into/etc/npmrc" 2>/dev/null || true  # there may be none
    inside apt-get install -y --no-install-recommends libstdc++6 libatomic1 \
        >>"$folder/first.log" 2>&1 </dev/null || fail "apt-get failed in $root" "see $folder/first.log"
    ln -s ../lib/node_modules/npm/bin/npm-cli.js "$into/bin/npm"
    ln -s ../lib/node_modules/npm/bin/npx-cli.js "$into/bin/npx"
}
