# PID 1 in the guest's root: what a system has that is up, then the command, then off.
# ttyS0 has what the command prints, ttyS1 has JSON lines for the host, ttyS2 is the kernel's console.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root USER=root TERM=dumb LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PARETO_GUEST=/dev/ttyS1
mkdir -p /dev/pts /dev/shm /run/lock
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ln -sfn /proc/self/fd /dev/fd
hostname guest
# Whenever nothing else would run, and so often that no wait depends on the host's clock: see boot.py.
chrt --idle 0 /run/vm/spin &
ip link set lo up
# As files are written: no line discipline that turns \n into \r\n.
stty -F /dev/ttyS0 raw -echo
stty -F /dev/ttyS1 raw -echo
read -r up _ </proc/uptime
echo "{\"up_s\": $up, \"kernel\": \"$(uname -r)\"}" >/dev/ttyS1
bash /run/vm/command.sh </dev/null >/dev/ttyS0 2>&1
echo "{\"exit\": $?}" >/dev/ttyS1
exec /run/vm/busybox poweroff -f
