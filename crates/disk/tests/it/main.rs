//! Real disks, made by real tools: what this crate sees is compared with what the kernel and those
//! tools see.
//!
//! Debian packages: `e2fsprogs` (`mke2fs`, `debugfs`, `e2fsck`), `acl`, `attr`, `btrfs-progs`,
//! `dosfstools`, `exfat-fuse`, `exfatprogs`, `fdisk`, `gdisk`, `lvm2`, `mtools`, `ntfs-3g`, `python3`,
//! `qemu-utils`, `util-linux`, `xfsprogs`. What mounts needs root and a loop device.
#![expect(clippy::unwrap_used, reason = "a helper that cannot do its work fails the test")]

mod world;

mod tables;

mod layers;
mod lvm;

mod swap;

mod made;

mod mounted;

mod dirty;
mod flags;
mod owners;

mod xfs;

mod fat;
mod xfs_made;

mod exfat;

mod btrfs;
mod ntfs;

mod btrfs_hostile;

mod hostile;

mod image;
