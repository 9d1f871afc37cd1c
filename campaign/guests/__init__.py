"""A Debian 12 with systemd under QEMU, for what must be seen on a whole machine.

`guest.py` runs one, `image.py` builds its disk. `early/` is in that disk's root before the packages
are, `files/` is laid over it after them, and then `setup` runs in it. The guest has a mail server (`files/etc/smtpd.conf`) and a receiver of webhooks
(`files/usr/local/sbin/webhook`)."""
