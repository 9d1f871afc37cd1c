# Makes the machine of Anna, who reads the book, and becomes Anna. It is in namespaces of its own:
# nothing of the real one is changed. `$1` is the test's folder, `anna.sh` there what Anna does.
set -euo pipefail
here=$1
mount --make-rprivate /
hostname laptop
ip link set lo up
chmod 777 "$here"
mkdir "$here/over"
mount -t tmpfs tmpfs "$here/over"
for folder in etc usr/local; do
  mkdir -p "$here/over/$folder/upper" "$here/over/$folder/work"
  mount -t overlay -o "lowerdir=/$folder,upperdir=$here/over/$folder/upper,workdir=$here/over/$folder/work" overlay "/$folder"
done
cp "$VERSITYGW" "$here/over/versitygw"
cp "$PROGRAM" /usr/local/bin/strongroom
for folder in /home /media /mnt /run /srv; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
mkdir -p /run/sshd /home/root /home/anna /media/disk /media/other
# Some containers keep users from mounting.
mknod -m 666 "$here/over/fuse" c 10 229
mount --bind "$here/over/fuse" /dev/fuse

sed -i -e 's|^root:.*|root:x:0:0:root:/home/root:/bin/bash|' -e '$a anna:x:1234:1234::/home/anna:/bin/bash' /etc/passwd
echo 'anna:x:1234:' >> /etc/group
echo 'anna:*:20000:0:99999:7:::' >> /etc/shadow
echo '127.0.0.1 laptop localhost backup.example s3.example' > /etc/hosts
echo 'UUID=0c /home ext4 defaults 0 2' > /etc/fstab
chown anna:anna /home/anna /media/disk /media/other

# In the place of sudo, which is not installed everywhere and would ask for a password.
install -m 4755 /usr/bin/setpriv /usr/local/bin/as-root
cat > /usr/local/bin/sudo <<'END'
#!/bin/bash
exec as-root --reuid 0 --regid 0 --clear-groups \
  env -i HOME=/home/root USER=root PATH="$PATH" LANG="$LANG" TZ="$TZ" "$@"
END
chmod +x /usr/local/bin/sudo

cd /home/anna
exec setpriv --reuid anna --regid anna --clear-groups bash --noprofile --norc "$here/anna.sh" "$here"
