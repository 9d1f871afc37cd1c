//! A program that speaks for itself, as no library would.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketType, connect, recvmsg, sendmsg, socket,
};
use strongroom_base::Stopwatch;
use strongroom_bucket::{FromProgram, KeyRange, MESSAGE_BYTES_MAX, PROTOCOL, ToProgram};

use crate::world::{Memory, World};

pub struct Raw(OwnedFd);

impl Raw {
    pub fn connect(path: &Path) -> rustix::io::Result<Self> {
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// One that the agent takes.
    #[track_caller]
    pub fn greet(world: &World, number: u32) -> Self {
        let raw = Self::connect(&world.socket()).unwrap();
        raw.say(&FromProgram::Hello { protocol: PROTOCOL, file: "file".into(), bucket: number });
        assert_eq!(raw.hear(), Some(ToProgram::Welcome { protocol: PROTOCOL }));
        raw
    }

    /// One with an area, and callbacks.
    #[track_caller]
    pub fn with_memory(world: &World, number: u32, memory: &Memory) -> Self {
        let raw = Self::greet(world, number);
        let bytes = memory.0.metadata().unwrap().len();
        assert_eq!(raw.register("data", memory.0.as_fd(), bytes), Ok(()));
        raw.say(&FromProgram::Callbacks { has_callbacks: true });
        raw.settle();
        raw
    }

    /// Waits until the agent has heard what was said before.
    #[track_caller]
    pub fn settle(&self) {
        self.say(&FromProgram::Forget { request: 901, area: "none".to_owned() });
        self.hear_until("done", |it| *it == ToProgram::Done { request: 901 });
    }

    pub fn whole(&self) {
        self.say(&FromProgram::Range { range: KeyRange::whole(), split_version: 0 });
    }

    #[track_caller]
    pub fn say(&self, message: &FromProgram) {
        self.try_say(message, None).unwrap();
    }

    /// Says something if it is heard.
    pub fn try_say(
        &self,
        message: &FromProgram,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> rustix::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.as_slice();
        if !descriptors.is_empty() {
            assert!(beside.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        let bytes = message.pack();
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut beside, SendFlags::NOSIGNAL).map(drop)
    }

    #[track_caller]
    pub fn register(&self, area: &str, file: BorrowedFd<'_>, bytes: u64) -> Result<(), String> {
        let (request, area) = (900, area.to_owned());
        let message = FromProgram::Region { request, area, bytes, base: None, is_private: false };
        self.try_say(&message, Some(file)).unwrap();
        match self.hear() {
            Some(ToProgram::Done { request: 900 }) => Ok(()),
            Some(ToProgram::Failed { request: 900, reason }) => Err(reason),
            other => panic!("{other:?}"),
        }
    }

    /// Registers an area that replaces the one of its name. Other messages may come meanwhile.
    #[track_caller]
    pub fn replace(&self, area: &str, memory: &Memory) {
        let (bytes, area) = (memory.0.metadata().unwrap().len(), area.to_owned());
        let (request, base) = (902, None);
        let message = FromProgram::Region { request, area, bytes, base, is_private: false };
        self.try_say(&message, Some(memory.0.as_fd())).unwrap();
        self.hear_until("done", |it| *it == ToProgram::Done { request });
    }

    pub fn store(&self, request: u32, version: u64, is_copy: bool) {
        let (name, areas) = ("v".to_owned(), Vec::new());
        self.say(&FromProgram::Store { request, name, version, is_copy, areas });
    }

    pub fn wait(&self, request: u32, version: u64) {
        self.say(&FromProgram::Wait { request, name: "v".to_owned(), version });
    }

    /// What the agent says within 10 seconds; `None` at the end.
    #[track_caller]
    pub fn hear(&self) -> Option<ToProgram> {
        self.hear_within(Duration::from_secs(10)).expect("the agent says nothing")
    }

    /// What the agent says within a time.
    pub fn hear_within(&self, time: Duration) -> Result<Option<ToProgram>, ()> {
        let mut polled = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        let time = Timespec::try_from(time).unwrap();
        if poll(&mut polled, Some(&time)).unwrap() == 0 {
            return Err(());
        }
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(&self.0, &mut parts, &mut beside, RecvFlags::empty());
        Ok(match received.map_or(0, |received| received.bytes) {
            0 => None,
            length => Some(ToProgram::unpack(&bytes[..length]).unwrap()),
        })
    }

    /// Hears until it is what is awaited; the rest is dropped.
    #[track_caller]
    pub fn hear_until(&self, what: &str, is: impl Fn(&ToProgram) -> bool) -> ToProgram {
        let start = Stopwatch::start();
        while start.elapsed() < Duration::from_secs(20) {
            match self.hear_within(Duration::from_secs(1)) {
                Ok(Some(message)) if is(&message) => return message,
                Ok(None) => panic!("{what}: the agent ended the connection"),
                _ => {}
            }
        }
        panic!("{what}: not within 20 seconds");
    }

    /// Waits to be asked to hold still.
    #[track_caller]
    pub fn asked(&self) -> u64 {
        match self.hear_until("quiesce", |it| matches!(it, ToProgram::Quiesce { .. })) {
            ToProgram::Quiesce { epoch } => epoch,
            _ => 0,
        }
    }

    /// Holds still when it is asked.
    #[track_caller]
    pub fn hold_still(&self, is_copy: bool) -> u64 {
        let epoch = self.asked();
        self.say(&FromProgram::Quiesced { epoch, is_copy, outcome: Ok(()) });
        epoch
    }
}
