#!/busybox sh
# PID 1 in the initrd: this machine's root, read-only below a layer in memory, then guest.sh in it.
B=/busybox
$B mkdir -p /proc /sys /dev /lower /upper /root
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
for module in /*.ko; do $B insmod "$module"; done
$B mount -t virtiofs -o ro host /lower || $B poweroff -f
$B mount -t tmpfs -o size=80% tmpfs /upper
$B mkdir /upper/changes /upper/work
$B mount -t overlay -o lowerdir=/lower,upperdir=/upper/changes,workdir=/upper/work overlay /root || $B poweroff -f
for folder in proc sys dev; do $B mount --move /$folder /root/$folder; done
# The host's sockets and pid files mean nothing here.
$B mount -t tmpfs -o mode=755 run /root/run
$B mkdir /root/run/vm
$B cp /busybox /guest.sh /command.sh /spin /root/run/vm/
# From PID 1 itself: kernel threads share its root, so the kernel's own calls of modprobe see the new one.
exec $B switch_root /root /bin/bash /run/vm/guest.sh
