//! The handshake: options, until the client has chosen an export.

use std::io;
use std::sync::Arc;

use crate::export::{Export, Exports};
use crate::stream::{Deadline, Receiver, Stream};
use crate::wire::{
    BASE_ALLOCATION, FIXED_NEWSTYLE, Fields, GREETING_MAGIC, NO_ZEROES, OPTION_BYTES_MAX,
    OPTION_HEAD_BYTES, OPTION_MAGIC, ProtocolError, Put, REQUEST_BYTES_MAX, STRING_BYTES_MAX,
    answer, flag, info, option, put_option_reply, text,
};

/// The most options of one client. To list exports, QEMU asks two things about each.
const OPTIONS_MAX: usize = 100_000;
/// The most information that is asked for, or contexts, in one option.
const QUERIES_MAX: u32 = 256;
/// The number of the context `base:allocation`.
pub const ALLOCATION_ID: u32 = 1;

/// The preferred block: a page of the guest.
const BLOCK_PREFERRED: u32 = 4096;

/// What was agreed on.
#[derive(Clone)]
pub struct Agreed {
    pub export: Arc<dyn Export>,
    /// The size that was reported to the client.
    pub size: u64,
    pub has_structured_replies: bool,
    /// The client may ask for `base:allocation`.
    pub has_allocation: bool,
}

/// Negotiates with a client. Returns nothing if the client leaves without having chosen an export.
///
/// # Errors
///
/// If the client breaks the protocol, is too slow, or is gone.
pub fn haggle(
    receiver: &mut Receiver,
    stream: &Stream,
    exports: &dyn Exports,
    deadline: Deadline,
) -> io::Result<Option<Agreed>> {
    let mut greeting = Vec::new();
    greeting.put_u64(GREETING_MAGIC);
    greeting.put_u64(OPTION_MAGIC);
    greeting.put_u16(FIXED_NEWSTYLE | NO_ZEROES);
    stream.send(&greeting, deadline.left())?;
    let mut flags = [0; 4];
    receiver.fill_until(&mut flags, deadline)?;
    let flags = Fields(&flags).u32()?;
    let known = u32::from(FIXED_NEWSTYLE | NO_ZEROES);
    if flags & !known != 0 || flags & u32::from(FIXED_NEWSTYLE) == 0 {
        return Err(ProtocolError("the client does not speak fixed newstyle").into());
    }
    let mut haggling = Haggling {
        receiver,
        stream,
        exports,
        deadline,
        has_no_zeroes: flags & u32::from(NO_ZEROES) != 0,
        has_structured_replies: false,
        contexts_of: None,
        opened: None,
    };
    for _ in 0..OPTIONS_MAX {
        match haggling.option()? {
            Step::Next => {}
            Step::Leave => return Ok(None),
            Step::Go(agreed) => return Ok(Some(agreed)),
        }
    }
    Err(ProtocolError("there is no end of options").into())
}

/// What an option leads to.
enum Step {
    Next,
    Leave,
    Go(Agreed),
}

/// Why an option is refused: the answer, and words for a person.
type Refusal = (u32, &'static str);

/// A handshake that has not ended.
struct Haggling<'a> {
    receiver: &'a mut Receiver,
    stream: &'a Stream,
    exports: &'a dyn Exports,
    deadline: Deadline,
    has_no_zeroes: bool,
    has_structured_replies: bool,
    /// The export for which the client has chosen `base:allocation`.
    contexts_of: Option<String>,
    /// The last export that it asked about, so that it is opened once.
    opened: Option<(String, Arc<dyn Export>)>,
}

impl Haggling<'_> {
    fn option(&mut self) -> io::Result<Step> {
        let mut head = [0; OPTION_HEAD_BYTES];
        self.receiver.fill_until(&mut head, self.deadline)?;
        let mut fields = Fields(&head);
        if fields.u64()? != OPTION_MAGIC {
            return Err(ProtocolError("an option has the wrong magic number").into());
        }
        let (option, bytes) = (fields.u32()?, fields.u32()?);
        if bytes as usize > OPTION_BYTES_MAX {
            self.receiver.skip_until(bytes.into(), self.deadline)?;
            return self.refuse(option, (answer::ERR_TOO_BIG, "the option is too long"));
        }
        let mut data = vec![0; bytes as usize];
        self.receiver.fill_until(&mut data, self.deadline)?;
        self.carry_out(option, &data)
    }

    fn carry_out(&mut self, option: u32, data: &[u8]) -> io::Result<Step> {
        match option {
            option::EXPORT_NAME => self.export_name(data),
            option::ABORT => {
                // The client may be gone already, as the protocol allows.
                let _ = self.reply(option, answer::ACK, &[]);
                Ok(Step::Leave)
            }
            option::LIST => self.list(data),
            option::INFO | option::GO => self.info(option, data),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.has_structured_replies = true;
                self.reply(option, answer::ACK, &[])
            }
            option::STRUCTURED_REPLY => self.refuse(option, NO_DATA),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(option, data),
            option::STARTTLS => {
                self.refuse(option, (answer::ERR_POLICY, "connections do not leave the machine"))
            }
            _ => self.refuse(option, (answer::ERR_UNSUP, "the server does not know this option")),
        }
    }

    /// The oldest way to choose an export: it cannot say that there is none.
    fn export_name(&mut self, data: &[u8]) -> io::Result<Step> {
        let export = self.open(text(data)?)?;
        let agreed = self.agree(export, text(data)?);
        let mut reply = Vec::new();
        reply.put_u64(agreed.size);
        reply.put_u16(transmission_flags(&*agreed.export, self.has_structured_replies));
        if !self.has_no_zeroes {
            reply.put(&[0; 124]);
        }
        self.stream.send(&reply, self.deadline.left())?;
        Ok(Step::Go(agreed))
    }

    fn list(&mut self, data: &[u8]) -> io::Result<Step> {
        if !data.is_empty() {
            return self.refuse(option::LIST, NO_DATA);
        }
        let names = self.exports.names();
        // That took our time, not the client's.
        self.deadline = self.deadline.renewed();
        let Ok(names) = names else {
            return self.refuse(option::LIST, (answer::ERR_POLICY, "the list cannot be read"));
        };
        let mut replies = Vec::new();
        for name in names.iter().filter(|name| name.len() <= STRING_BYTES_MAX) {
            let mut entry = Vec::with_capacity(4 + name.len());
            entry.put_sized(name.as_bytes());
            put_option_reply(&mut replies, option::LIST, answer::SERVER, &entry);
            if replies.len() > OPTION_BYTES_MAX {
                self.stream.send(&replies, self.deadline.left())?;
                replies.clear();
            }
        }
        self.stream.send(&replies, self.deadline.left())?;
        self.reply(option::LIST, answer::ACK, &[])
    }

    fn info(&mut self, option: u32, data: &[u8]) -> io::Result<Step> {
        let Ok((name, wanted)) = unpack_info(data) else { return self.refuse(option, MALFORMED) };
        let export = match self.open(name) {
            Ok(export) => export,
            Err(error) => return self.refuse(option, refusal_to_open(&error)),
        };
        let mut facts = Vec::new();
        facts.put_u16(info::EXPORT);
        facts.put_u64(export.size());
        facts.put_u16(transmission_flags(&*export, self.has_structured_replies));
        self.reply(option, answer::INFO, &facts)?;
        if wanted.contains(&info::NAME) {
            let mut facts = Vec::new();
            facts.put_u16(info::NAME);
            facts.put(name.as_bytes());
            self.reply(option, answer::INFO, &facts)?;
        }
        if wanted.contains(&info::BLOCK_SIZE) {
            let mut facts = Vec::new();
            facts.put_u16(info::BLOCK_SIZE);
            facts.put_u32(1);
            facts.put_u32(BLOCK_PREFERRED);
            facts.put_u32(REQUEST_BYTES_MAX);
            self.reply(option, answer::INFO, &facts)?;
        }
        self.reply(option, answer::ACK, &[])?;
        Ok(if option == option::GO { Step::Go(self.agree(export, name)) } else { Step::Next })
    }

    /// Lists contexts, or chooses some.
    fn contexts(&mut self, option: u32, data: &[u8]) -> io::Result<Step> {
        let sets = option == option::SET_META_CONTEXT;
        if sets {
            // As the protocol says, also if this one fails.
            self.contexts_of = None;
        }
        if !self.has_structured_replies {
            let refusal = (answer::ERR_INVALID, "structured replies must be agreed on first");
            return self.refuse(option, refusal);
        }
        let Ok((name, queries)) = unpack_contexts(data) else {
            return self.refuse(option, MALFORMED);
        };
        if let Err(error) = self.open(name) {
            return self.refuse(option, refusal_to_open(&error));
        }
        let matches =
            queries.iter().any(|&query| query == BASE_ALLOCATION || (!sets && query == "base:"));
        if matches || (!sets && queries.is_empty()) {
            let mut context = Vec::new();
            context.put_u32(if sets { ALLOCATION_ID } else { 0 });
            context.put(BASE_ALLOCATION.as_bytes());
            self.reply(option, answer::META_CONTEXT, &context)?;
            if sets {
                self.contexts_of = Some(name.to_owned());
            }
        }
        self.reply(option, answer::ACK, &[])
    }

    fn open(&mut self, name: &str) -> io::Result<Arc<dyn Export>> {
        match &self.opened {
            Some((opened, export)) if opened == name => Ok(export.clone()),
            _ => {
                // The one before is closed first.
                self.opened = None;
                let opened = self.exports.open(name);
                // That took our time, not the client's.
                self.deadline = self.deadline.renewed();
                let export = opened?;
                self.opened = Some((name.to_owned(), export.clone()));
                Ok(export)
            }
        }
    }

    fn agree(&self, export: Arc<dyn Export>, name: &str) -> Agreed {
        Agreed {
            size: export.size(),
            export,
            has_structured_replies: self.has_structured_replies,
            has_allocation: self.contexts_of.as_deref() == Some(name),
        }
    }

    fn refuse(&self, option: u32, (answer, words): Refusal) -> io::Result<Step> {
        self.reply(option, answer, words.as_bytes())
    }

    fn reply(&self, option: u32, answer: u32, data: &[u8]) -> io::Result<Step> {
        let mut reply = Vec::new();
        put_option_reply(&mut reply, option, answer, data);
        self.stream.send(&reply, self.deadline.left())?;
        Ok(Step::Next)
    }
}

const NO_DATA: Refusal = (answer::ERR_INVALID, "the option has no data");
const MALFORMED: Refusal = (answer::ERR_INVALID, "the option is malformed");

fn refusal_to_open(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::NotFound => (answer::ERR_UNKNOWN, "there is no export of this name"),
        _ => (answer::ERR_UNKNOWN, "the export cannot be opened"),
    }
}

fn unpack_info(data: &[u8]) -> Result<(&str, Vec<u16>), ProtocolError> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u16()?;
    if u32::from(count) > QUERIES_MAX {
        return Err(ProtocolError("too much is asked for"));
    }
    let wanted = (0..count).map(|_| fields.u16()).collect::<Result<_, _>>()?;
    fields.finish()?;
    Ok((name, wanted))
}

fn unpack_contexts(data: &[u8]) -> Result<(&str, Vec<&str>), ProtocolError> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u32()?;
    if count > QUERIES_MAX {
        return Err(ProtocolError("too much is asked for"));
    }
    let queries = (0..count).map(|_| fields.string()).collect::<Result<_, _>>()?;
    fields.finish()?;
    Ok((name, queries))
}

/// What can be done with an export.
fn transmission_flags(export: &dyn Export, has_structured_replies: bool) -> u16 {
    let mut flags = flag::HAS_FLAGS | flag::SEND_CACHE;
    if export.is_read_only() {
        flags |= flag::READ_ONLY;
    } else {
        flags |= flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_TRIM;
        flags |= flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
    }
    if export.allows_several_connections() {
        flags |= flag::CAN_MULTI_CONN;
    }
    if has_structured_replies {
        flags |= flag::SEND_DF;
    }
    flags
}
