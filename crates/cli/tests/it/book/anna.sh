# What Anna has at hand before a chapter begins. `$1` is the test's folder.
set -euo pipefail
here=$1

mkdir -p ~/Documents/letters ~/Documents/photos ~/.aws ~/.cache ~/.config ~/.ssh
echo 'Dear Bert,' > ~/Documents/letters/bert.txt
echo 'It begins in the year' > ~/Documents/thesis-1.odt
head -c 300000 /dev/urandom > ~/Documents/photos/sea.jpg
head -c 200000 /dev/urandom > ~/Documents/photos/hill.jpg
# What changed within the last minute is read again by the next backup.
touch -d '2026-10-01 12:00' ~/Documents/*.odt ~/Documents/*/*

# A server at home, backup.example, which takes Anna's key.
a_server_with_ssh() {
  ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
  cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys
  sudo ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/host
  printf '%s\n' 'ListenAddress 127.0.0.1:22' 'HostKey /etc/ssh/host' 'UsePAM no' 'StrictModes no' \
    'PasswordAuthentication no' 'SetEnv PATH=/usr/local/bin:/usr/bin:/bin' | sudo tee /etc/ssh/test_config > /dev/null
  sudo /usr/sbin/sshd -f /etc/ssh/test_config -E "$here/sshd.log"
  echo "backup.example $(cut -d' ' -f1,2 /etc/ssh/host.pub)" > ~/.ssh/known_hosts
}

# A store that speaks S3, with a bucket of this name that keeps versions and takes locks.
a_bucket() {
  mkdir "$here/over/data" "$here/over/versions"
  ROOT_ACCESS_KEY=AKIAEXAMPLE ROOT_SECRET_KEY=secret "$here/over/versitygw" --port 127.0.0.1:7070 posix \
    --versioning-dir "$here/over/versions" "$here/over/data" > "$here/s3.log" 2>&1 &
  printf '[default]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key = secret\n' > ~/.aws/credentials
  printf '[default]\nregion = us-east-1\nendpoint_url = http://s3.example:7070\n' > ~/.aws/config
  until (echo > /dev/tcp/127.0.0.1/7070) 2> /dev/null; do sleep 0.05; done
  as_s3 -X PUT -H 'x-amz-bucket-object-lock-enabled: true' "$1"
  as_s3 -X PUT -d '<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>' "$1?versioning="
}

# A request of S3: arguments of curl, with the name of a bucket or object at the end.
as_s3() {
  curl -sS --fail-with-body -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -u AKIAEXAMPLE:secret \
    --aws-sigv4 aws:amz:us-east-1:s3 "${@:1:$#-1}" "http://s3.example:7070/${*: -1}"
}
