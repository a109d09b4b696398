#!/usr/bin/env bash
# A Debian package of a wheel: deploy/deb/build.sh trace_drain_receiver-*.whl TARGET_DIRECTORY
#
# It contains the units of deploy/systemd and a virtual environment in /opt/trace-drain with the locked dependencies and
# the embedded engine. The environment uses the system's Python, so the package is for the distribution that builds it.
# Needs Debian 12 or Ubuntu 22.10, or newer, with python3-venv. The content depends on the wheel, the lock and
# SOURCE_DATE_EPOCH only.
set -euo pipefail
umask 022
wheel=$(realpath "$1") target=$(realpath "$2")
cd "$(dirname "$0")/../.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
root=$temporary/root venv=$temporary/root/opt/trace-drain

mkdir -p "$root"/{DEBIAN,etc/trace-drain,usr/bin,usr/lib/systemd/system,usr/lib/sysusers.d,usr/share/doc/trace-drain-receiver}
cp deploy/trace-drain.toml "$root/etc/trace-drain/"
cp deploy/systemd/trace-drain.{service,socket} "$root/usr/lib/systemd/system/"
cp deploy/deb/sysusers.conf "$root/usr/lib/sysusers.d/trace-drain.conf"
cp LICENSE "$root/usr/share/doc/trace-drain-receiver/copyright"
ln -s /opt/trace-drain/bin/trace-drain "$root/usr/bin/trace-drain"

/usr/bin/python3 -m venv "$venv"
pip() { env -u PYTHONPATH "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
pip install --require-hashes --no-deps --no-compile --only-binary :all: -r requirements/serve.lock
pip install --no-deps --no-compile "$wheel"
pip uninstall --yes setuptools pip
rm "$venv"/lib/python3.*/site-packages/trace_drain_receiver-*.dist-info/direct_url.json
# Digests of files that name temporary directories, and are changed or deleted here.
sed -i -E '\#^\.\./\.\./\.\./bin/|direct_url\.json,#d' "$venv"/lib/python3.*/site-packages/*.dist-info/RECORD
find "$venv/bin" -type f ! -name trace-drain -delete
sed -i "s|$root||g" "$venv/bin/trace-drain" "$venv/pyvenv.cfg"
find "$venv" -name __pycache__ -prune -exec rm -r {} +
# The unit cannot write to /opt, and must not compile all modules at every start.
/usr/bin/python3 -m compileall -q -s "$root" -p / --invalidation-mode unchecked-hash "$venv/lib"

python=$(/usr/bin/python3 -c 'import sys; print(f"python3 (>= 3.{sys.version_info.minor}~), python3 (<< 3.{sys.version_info.minor + 1}~)")')
version=$(basename "$wheel" | cut -d- -f2)+$(. /etc/os-release && echo "$ID$VERSION_ID")
architecture=$(dpkg --print-architecture)
cat > "$root/DEBIAN/control" <<CONTROL
Package: trace-drain-receiver
Version: $version
Architecture: $architecture
Maintainer: The authors of trace-drain-receiver
Section: net
Priority: optional
Depends: $python, systemd
Installed-Size: $(find "$root" -type f -printf '%s\n' | awk '{ bytes += $1 } END { print int(bytes / 1024) }')
Description: receiver of OpenTelemetry traces that stores them in ClickHouse
 OTLP traces in over HTTPS, on disk before the 200, in ClickHouse exactly once.
CONTROL
echo /etc/trace-drain/trace-drain.toml > "$root/DEBIAN/conffiles"
install -m 0755 deploy/deb/{postinst,prerm,postrm} "$root/DEBIAN/"
(cd "$root" && find etc opt usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum > DEBIAN/md5sums)
dpkg-deb --root-owner-group -Zzstd --build "$root" "$target/trace-drain-receiver_${version}_$architecture.deb"
