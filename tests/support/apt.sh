#!/bin/sh
# apt.sh PACKAGE COMMAND: install a Debian package unless its command is there. For root.
#
# A package with a service would start it at once and at every boot: the tests run servers of
# their own, and nobody asked for another. So starts are refused while apt works, by the file that
# Debian has for this, which is put back as it was; and a service that came along is not enabled.
set -eu

package=$1
command=$2
policy=/usr/sbin/policy-rc.d

if command -v "$command" >/dev/null; then
    exit 0
fi

present() { [ -e "$1" ] || [ -L "$1" ]; }

restore() {
    rm -f "$policy"
    if present "$policy.redjob"; then
        mv "$policy.redjob" "$policy"
    fi
}
trap restore EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# One that an interrupted run set aside is the system's own: it must not be lost.
if present "$policy" && ! present "$policy.redjob"; then
    mv "$policy" "$policy.redjob"
fi
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"

echo "installing $package (for $command) from the system's packages"
export DEBIAN_FRONTEND=noninteractive
options="-qq -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0"
# shellcheck disable=SC2086  # several words
apt-get $options update
# shellcheck disable=SC2086
apt-get $options install --no-install-recommends "$package" >/dev/null

if [ -d /run/systemd/system ] && [ -e "/lib/systemd/system/$package.service" ]; then
    systemctl disable --quiet "$package.service"
fi
