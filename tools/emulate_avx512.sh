#!/usr/bin/env bash
# tools/emulate_avx512.sh: runs a test program with the AVX-512 kernels on a machine that has none.
#
#   tools/emulate_avx512.sh kernels_tests
#   tools/emulate_avx512.sh attention_tests 'Poison.*:Sizes.*'
#
# The program is that of build/release. It runs under Bochs, which knows AVX-512 (QEMU and valgrind do not), on a kernel of
# Debian's with nothing else around it. Needs root: Bochs 3 is Debian 13's and lives in a small system of its own under
# build/avx512, which is made when it is not there yet. The emulator's x87 is inexact: two tests of log2 in double precision,
# which compare with log2l, fail in it.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

[ $# -ge 1 ] && [ $# -le 2 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
program=$1 filter=${2:-*}
shared=${QKV_SHARED:-../shared}
home=$PWD/build/avx512 system=$PWD/build/avx512/debian
fail() { printf 'emulate: %s\n' "$*" >&2; exit 1; }
say() { printf 'emulate: %s\n' "$*" >&2; }
[ -x "build/release/tests/$program" ] || fail "there is no build/release/tests/$program; ./dev build makes it"
[ "$(id -u)" = 0 ] || fail "this needs root, for chroot"

mkdir -p "$home"
exec 9>"$home/lock"
flock -n 9 || fail "another one is running in build/avx512"

install_once() {
  [ ! -e "$home/ready" ] || return 0
  say "installing what it needs (once), a log is in build/avx512/install.log"
  local mirror kernel
  mirror=$(awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources)
  {
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends debootstrap grub-pc-bin grub-common xorriso mtools cpio busybox-static
    rm -rf "$system" "$home/kernel"
    debootstrap --variant=minbase trixie "$system" "$mirror"
    chroot "$system" apt-get install -y -qq --no-install-recommends bochs vgabios bochsbios
    kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
    (cd "$home" && apt-get download "$kernel")
    dpkg-deb -x "$home/$kernel"_*.deb "$home/kernel"
  } >"$home/install.log" 2>&1 || { tail -n 5 "$home/install.log" >&2; fail "that failed"; }
  touch "$home/ready"
}

# A root folder in memory: the program, its libraries, a shell, the conformance cases if they are there.
make_root() {
  local root=$home/root library
  rm -rf "$root"
  mkdir -p "$root"/{bin,proc,dev,tmp,shared}
  cp "$(command -v busybox)" "$root/bin/busybox"
  for name in sh mount sleep poweroff; do ln -s busybox "$root/bin/$name"; done
  strip -o "$root/bin/program" "build/release/tests/$program"
  ldd "build/release/tests/$program" | grep -oE '/[^ ]+' | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
  [ ! -d "$shared/onnx_attention" ] || cp -r "$shared/onnx_attention" "$root/shared/"
  cat >"$root/init" <<INIT
#!/bin/sh
export PATH=/bin QKV_SHARED=/shared QKV_TEST_ISA=avx512
mount -t proc proc /proc
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
program --gtest_color=no --gtest_filter='$filter'
echo "emulate: exit code \$?"
sleep 2  # until the last line is out
poweroff -f
INIT
  chmod +x "$root/init"
}

# clearcpuid: of GFNI and VAES, whose instructions the kernel would use and the emulated processor has not.
make_disc() {
  local disc=$home/disc
  rm -rf "$disc"
  mkdir -p "$disc/boot/grub"
  cp "$home"/kernel/boot/vmlinuz-* "$disc/boot/vmlinuz"
  (cd "$home/root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$disc/boot/initrd"
  cat >"$disc/boot/grub/grub.cfg" <<'GRUB'
set timeout=0
menuentry tests {
  linux /boot/vmlinuz console=ttyS0 loglevel=3 clearcpuid=321,323 mitigations=off nokaslr lpj=1000000 tsc=reliable no_timer_check panic=1 random.trust_cpu=on
  initrd /boot/initrd
}
GRUB
  rm -f "$system/tmp/disc.iso" "$system/tmp/disc.iso.lock"
  grub-mkrescue -o "$system/tmp/disc.iso" "$disc" >"$home/disc.log" 2>&1 || { tail -n 3 "$home/disc.log" >&2; fail "no disc was made"; }
  cat >"$system/tmp/bochsrc" <<'BOCHS'
megs: 1024
cpu: model=corei7_skylake_x, count=1, ips=100000000, reset_on_triple_fault=0
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
ata0-master: type=cdrom, path=/tmp/disc.iso, status=inserted
boot: cdrom
display_library: rfb, options="timeout=0"
com1: enabled=1, mode=file, dev=/tmp/out
log: /tmp/log
clock: sync=none
speaker: enabled=0
panic: action=fatal
BOCHS
}

install_once
make_root
make_disc
say "$program $filter; the first line comes after half a minute"
: >"$system/tmp/out"
tail -n +1 -f "$system/tmp/out" 2>/dev/null & shower=$!
trap 'kill $shower 2>/dev/null || true' EXIT
chroot "$system" bochs -q -f /tmp/bochsrc </dev/null >"$home/bochs.log" 2>&1 || true
sleep 1
grep -aq 'emulate: exit code 0' "$system/tmp/out" || fail "the program failed, or did not come to its end"
