//! One attempt at an HTTP request, with the line's rate and with bounds on what is received.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use strongroom_backend::Refusal;
use ureq::http::{HeaderMap, Method, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Proxy, SendBody};

use crate::authority;
use crate::failure::Failure;
use crate::rate::{Line, PIECE_BYTES, Sending};
use crate::settings::{Settings, Variables};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(15);
/// How long nothing may move while bytes are on their way.
const PROGRESS: Duration = Duration::from_secs(30);
/// How long a server may take to answer after it has everything: some assemble an object then.
const ANSWER: Duration = Duration::from_secs(300);
/// Connections that are kept for the next request.
const IDLE_CONNECTIONS: usize = 64;
/// The most bytes of an answer that is only for people.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// What a machine asks about itself is never asked through a proxy.
const OF_THIS_MACHINE: [&str; 2] = ["169.254.169.254", "169.254.170.2"];

/// Connections to HTTP servers.
pub(crate) struct Http {
    /// For URLs over TLS, with the proxy for these.
    over_tls: Agent,
    /// For others.
    plain: Agent,
    line: Arc<Line>,
}

/// One request.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
    pub(crate) headers: &'a [(&'a str, String)],
    pub(crate) body: &'a [u8],
    /// An answer of more bytes is an error.
    pub(crate) answer_bytes_max: usize,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Http {
    /// Trusts the certificates that this machine trusts, and those in `authorities` (PEM).
    pub(crate) fn new(settings: &Settings, authorities: &[Vec<u8>]) -> Self {
        let mut roots: Vec<Certificate<'static>> = rustls_native_certs::load_native_certs()
            .certs
            .iter()
            .map(|certificate| Certificate::from_der(certificate).to_owned())
            .collect();
        for pem in authorities {
            let found = ureq::tls::parse_pem(pem).filter_map(|item| match item {
                Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            });
            roots.extend(found);
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(RootCerts::new_with_certs(&roots))
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let variables = &settings.variables;
        let agent = |proxy: Option<Proxy>| {
            Agent::config_builder()
                .proxy(proxy)
                .tls_config(tls.clone())
                .http_status_as_error(false)
                .allow_non_standard_methods(true)
                .max_redirects(0)
                .no_delay(true)
                .user_agent(concat!("strongroom/", env!("CARGO_PKG_VERSION")))
                .max_idle_connections(IDLE_CONNECTIONS)
                .max_idle_connections_per_host(IDLE_CONNECTIONS)
                .timeout_connect(Some(CONNECT))
                .timeout_per_read(Some(PROGRESS))
                .timeout_per_write(Some(PROGRESS))
                .timeout_recv_response(Some(ANSWER))
                .build()
                .new_agent()
        };
        let over_tls = agent(proxy(variables, ["HTTPS_PROXY", "https_proxy"]));
        let plain = agent(proxy(variables, ["http_proxy", "HTTP_PROXY"]));
        Self { over_tls, plain, line: Arc::new(Line::new(&settings.rate, &settings.clock)) }
    }

    /// Makes one attempt.
    pub(crate) fn call(&self, request: &Request<'_>) -> Result<Answer, Failure> {
        let method = Method::from_bytes(request.method.as_bytes()).map_err(Failure::lost)?;
        let mut builder = ureq::http::Request::builder().method(&method).uri(request.url);
        for (name, value) in request.headers {
            builder = builder.header(*name, value);
        }
        let is_over_tls = request.url.starts_with("https:");
        let agent = if is_over_tls { &self.over_tls } else { &self.plain };
        let has_body = !request.body.is_empty() || matches!(request.method, "PUT" | "POST");
        let outcome = if has_body {
            let mut sending = Sending { rest: request.body, line: &self.line };
            let built = builder
                .header("content-length", request.body.len())
                .body(SendBody::from_reader(&mut sending))
                .map_err(Failure::lost)?;
            agent.run(built)
        } else {
            agent.run(builder.body(()).map_err(Failure::lost)?)
        };
        let answer = outcome.map_err(lost)?;
        let (head, mut body) = answer.into_parts();
        let expected = body.content_length();
        let is_without_body = method == Method::HEAD;
        let mut received = Vec::new();
        let asks_for_part = request.headers.iter().any(|(name, _)| *name == "range");
        if asks_for_part
            && head.status == StatusCode::OK
            && expected.is_none_or(|expected| expected > request.answer_bytes_max as u64)
        {
            return Err(Failure::Unsupported("read a part of an object"));
        }
        if !is_without_body {
            let mut reader = body.as_reader();
            self.receive(&mut reader, request.answer_bytes_max, expected, &mut received)?;
        }
        Ok(Answer { status: head.status, headers: head.headers, body: received })
    }

    fn receive(
        &self,
        reader: &mut impl Read,
        max: usize,
        expected: Option<u64>,
        into: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let too_long = || Failure::lost("the answer is longer than what was asked for");
        if expected.is_some_and(|expected| expected > max as u64) {
            return Err(too_long());
        }
        into.reserve_exact(expected.map_or(0, |expected| expected as usize));
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = reader.read(&mut piece).map_err(Failure::Lost)?;
            if count == 0 {
                break;
            }
            self.line.receive(count);
            if into.len() + count > max {
                return Err(too_long());
            }
            into.extend_from_slice(&piece[..count]);
        }
        match expected {
            Some(expected) if expected != into.len() as u64 => {
                Err(Failure::lost("the answer ended before its end"))
            }
            _ => Ok(()),
        }
    }
}

impl Answer {
    /// A header's text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The part of an object that was asked for by [`range_header`], if the answer is one about it.
    pub(crate) fn part(&mut self, offset: u64, length: usize) -> Option<Result<Vec<u8>, Failure>> {
        match self.status {
            StatusCode::PARTIAL_CONTENT => {
                // A store that gives another part would be taken for a damaged medium.
                let is_another = self.header("content-range").and_then(first_and_last).is_some_and(
                    |(first, last)| {
                        // Behind the object's end, Azurite answers `bytes 10-9/10`.
                        let bytes = last.saturating_add(1).saturating_sub(first);
                        first != offset || bytes != self.body.len() as u64
                    },
                );
                Some(if is_another || self.body.len() > length {
                    Err(Failure::lost("the answer is another part than what was asked for"))
                } else {
                    Ok(std::mem::take(&mut self.body))
                })
            }
            // The whole object: a store may answer so if the range covers it.
            StatusCode::OK if offset == 0 => {
                self.body.truncate(length);
                Some(Ok(std::mem::take(&mut self.body)))
            }
            StatusCode::OK => Some(Err(Failure::Unsupported("read a part of an object"))),
            StatusCode::RANGE_NOT_SATISFIABLE => Some(Ok(Vec::new())),
            _ => None,
        }
    }

    /// The answer for people: its first line, or the status.
    pub(crate) fn message(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        if line.is_empty() || line.starts_with('<') {
            return self.status.to_string();
        }
        format!("{}: {}", self.status, line.chars().take(200).collect::<String>())
    }

    /// How a request failed whose status means the same everywhere.
    pub(crate) fn failure(&self) -> Failure {
        self.failure_saying(self.message())
    }

    /// The same, with a message that the caller found in the answer.
    pub(crate) fn failure_saying(&self, answer: String) -> Failure {
        let refused = |refusal| Failure::Refused { refusal, answer: answer.clone() };
        match self.status.as_u16() {
            404 | 410 => Failure::NotFound,
            401 => refused(Refusal::Credentials),
            403 => refused(Refusal::Right),
            408 | 425 => Failure::lost(answer),
            413 => Failure::Refused {
                refusal: Refusal::Other,
                answer: format!(
                    "{answer}: one request may not be as long as this; a proxy before the server \
                     often has such a limit (`client_max_body_size` of nginx, 100 MB at Cloudflare)"
                ),
            },
            507 => Failure::FULL,
            423 => refused(Refusal::Locked),
            429 | 503 | 509 => Failure::Busy { after: self.retry_after(), answer },
            501 | 405 => Failure::Unsupported("do this"),
            // The server will not do it later either, or wants a login to the network.
            505 | 506 | 508 | 510 | 511 => refused(Refusal::Other),
            // Something is wrong at the server, or on the way to it: proxies have codes of their own.
            500.. => Failure::lost(answer),
            _ => refused(Refusal::Other),
        }
    }

    /// How long the server asks to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let text = self.header("retry-after")?.trim();
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        // A time, to be compared with the server's own clock and not with ours.
        let time = |text: &str| jiff::fmt::rfc2822::parse(text).ok().map(|time| time.timestamp());
        let wait = time(text)?.duration_since(time(self.header("date")?)?);
        Some(Duration::from_secs(u64::try_from(wait.as_secs()).unwrap_or(0)))
    }
}

/// The first and the last byte in a header `content-range`.
fn first_and_last(text: &str) -> Option<(u64, u64)> {
    let text = text.trim().strip_prefix("bytes")?.trim_start();
    let (first, rest) = text.split_once('-')?;
    Some((first.trim().parse().ok()?, rest.split('/').next()?.trim().parse().ok()?))
}

/// The header `range` for a part of an object. None if the part is empty, or so far away that some
/// servers would read the numbers as negative ones.
pub(crate) fn range_header(offset: u64, length: usize) -> Option<String> {
    let last = offset.saturating_add(u64::try_from(length).ok()?.checked_sub(1)?);
    (last <= i64::MAX as u64).then(|| format!("bytes={offset}-{last}"))
}

/// Errors of TLS that another attempt meets again.
fn distrust(error: &rustls::Error) -> Option<Failure> {
    match error {
        rustls::Error::InvalidCertificate(_) => {
            let answer = authority::distrust(error);
            Some(Failure::Refused { refusal: Refusal::Identity, answer })
        }
        rustls::Error::InvalidMessage(_) => Some(Failure::Refused {
            refusal: Refusal::NoSuchPlace,
            answer: "what answers there does not speak TLS".to_owned(),
        }),
        _ => None,
    }
}

/// The proxy that one of these variables names, or `ALL_PROXY`; not for hosts in `NO_PROXY`.
fn proxy(variables: &Variables, names: [&str; 2]) -> Option<Proxy> {
    let names = names.into_iter().chain(["ALL_PROXY", "all_proxy"]);
    let given = Proxy::new(names.filter_map(|name| variables.text(name)).next()?).ok()?;
    let mut builder = Proxy::builder(given.protocol())
        .host(given.host())
        .port(given.port())
        .resolve_target(given.resolve_target());
    if let (Some(user), Some(password)) = (given.username(), given.password()) {
        builder = builder.username(user).password(password);
    }
    let except = variables.text("NO_PROXY").or_else(|| variables.text("no_proxy"));
    let except = except.unwrap_or_default().split(',').map(str::trim);
    for host in except.filter(|host| !host.is_empty()).chain(OF_THIS_MACHINE) {
        builder = builder.no_proxy(host);
    }
    builder.build().ok()
}

/// How a request failed that got no answer.
fn lost(error: ureq::Error) -> Failure {
    match error {
        ureq::Error::Io(error) => {
            // A certificate that is not trusted is reported as an error of reading.
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            inner.and_then(distrust).unwrap_or(Failure::Lost(error))
        }
        ureq::Error::Rustls(inner) => {
            distrust(&inner).unwrap_or_else(|| Failure::lost(inner.to_string()))
        }
        ureq::Error::BadUri(_) => {
            Failure::Refused { refusal: Refusal::NoSuchPlace, answer: error.to_string() }
        }
        _ => Failure::lost(error.to_string()),
    }
}
