//! A file system of several branches, of which some know no extended attributes: a union through FUSE.

use std::ffi::OsStr;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, ReplyAttr,
    ReplyDirectory, ReplyEntry, ReplyXattr, Request, spawn_mount,
};
use strongroom_source::{SourceOptions, TreeSource, WalkEvent};

use crate::kinds::is_root;

/// Two empty files. The first is on a branch without attributes.
const NAMES: [&str; 2] = ["a", "b"];
const NOTE: (&[u8], &[u8]) = (b"user.note", b"kept");

struct Union;

fn attributes(inode: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(inode),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: kind_of(inode),
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        flags: 0,
        blksize: 512,
    }
}

fn kind_of(inode: u64) -> FileType {
    if inode == 1 { FileType::Directory } else { FileType::RegularFile }
}

fn xattr(inode: INodeNo, bytes: &[u8], room: u32, reply: ReplyXattr) {
    match u64::from(inode) {
        2 => reply.error(Errno::EOPNOTSUPP),
        _ if room == 0 => reply.size(u32::try_from(bytes.len()).unwrap()),
        _ => reply.data(bytes),
    }
}

impl Filesystem for Union {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match (2..).zip(NAMES).find(|(_, known)| name == *known) {
            Some((inode, _)) => {
                reply.entry(&Duration::ZERO, &attributes(inode), Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &attributes(inode.into()));
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        for (place, name) in (1..).zip(NAMES).skip(usize::try_from(offset).unwrap()) {
            let inode = place + 1;
            if reply.add(INodeNo(inode), place, kind_of(inode), name) {
                break;
            }
        }
        reply.ok();
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, room: u32, reply: ReplyXattr) {
        xattr(inode, &[NOTE.0, b"\0"].concat(), room, reply);
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, _: &OsStr, room: u32, reply: ReplyXattr) {
        xattr(inode, NOTE.1, room, reply);
    }
}

#[test]
fn a_branch_without_attributes_says_nothing_of_the_others() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Ok(mounted) = spawn_mount(Union, folder.path(), &Config::default()) else {
        return strongroom_testkit::skip("nothing can be mounted through FUSE here");
    };
    let options = SourceOptions::default();
    let source = TreeSource::open(&[folder.path().to_owned()], &options).unwrap();
    let mut found = Vec::new();
    for event in source {
        match event {
            WalkEvent::Leaf { entry, .. } => {
                let read = entry.xattrs();
                assert!(read.problem.is_none(), "{read:?}");
                let xattrs = read.xattrs.into_iter();
                let xattrs: Vec<_> = xattrs.map(|xattr| (xattr.name, xattr.value)).collect();
                found.push((entry.name().to_vec(), xattrs));
            }
            WalkEvent::Problem { path, error } => panic!("{}: {error}", path.display()),
            _ => {}
        }
    }
    let note = (NOTE.0.to_vec(), NOTE.1.to_vec());
    assert_eq!(found, [(b"a".to_vec(), vec![]), (b"b".to_vec(), vec![note])]);
    mounted.umount_and_join().unwrap();
}
