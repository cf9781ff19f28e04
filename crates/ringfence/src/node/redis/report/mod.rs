//! Error messages about one server, for the operator: what happened, on which node, what to do.
//! Texts of the server are shortened and escaped, and our password is removed from them.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerError};

use crate::message::Request;
use crate::node::{CallError, Trouble, TroubleKind};
use crate::url::{Address, RedisUrl, encode};

use crate::node::redis::access::denial::is_denial;
use crate::node::redis::codec::record_key;
use crate::node::redis::handshake::born::{BirthRecord, Unreadable, VERSION};
use crate::node::redis::scripts::BORN_KEY;
use crate::node::redis::wire::resp::Excess;

/// How much of a server's text is quoted.
const QUOTE_MAX_CHARS: usize = 200;
/// How many characters of a password count as a part of it, where a server has cut its text off.
const BEGINNING_CHARS: usize = 4;

/// A part of the error of servers for a database number that is too high.
const NO_SUCH_DATABASE: &str = "DB index is out of range";

/// How the text of the system begins if the address of a host name is not found.
const LOOKUP_FAILED: &str = "failed to lookup address";
/// What the system says if the name service does not answer, which is no mistake of the name.
const TRY_AGAIN: [&str; 2] = ["Temporary failure", "Try again"];

/// Makes the error messages about one node.
#[derive(Clone)]
pub(crate) struct Reporter {
    /// The node's name in messages.
    pub(crate) node: Arc<str>,
    /// The ACL user that logs in.
    pub(crate) user: Arc<str>,
    /// Must never be shown: some servers echo the arguments of an unknown command.
    pub(crate) password: Option<Arc<str>>,
    /// Whether it connects with TLS; `None` if that is no question, as over a Unix socket.
    uses_tls: Option<bool>,
}

impl Reporter {
    /// A reporter for `node`, where `user` logs in, or the server's default user.
    pub(crate) fn new(node: &str, user: Option<&str>, password: Option<&str>) -> Self {
        Self {
            node: node.into(),
            user: user.unwrap_or("default").into(),
            password: password.map(Arc::from),
            uses_tls: None,
        }
    }

    /// A reporter for the node of `url`.
    pub(crate) fn of(url: &RedisUrl) -> Self {
        let node = url.address.to_string();
        let is_tcp = !matches!(url.address, Address::Unix(_));
        let reporter = Self::new(&node, url.user.as_deref(), url.password.as_deref());
        Self {
            uses_tls: is_tcp.then_some(url.tls.is_some()),
            ..reporter
        }
    }

    /// Trouble of `kind`: the node's name, then `what`.
    pub(crate) fn trouble(&self, kind: TroubleKind, what: impl AsRef<str>) -> Trouble {
        let what = self.scrub(&format!("{} {}", self.node, what.as_ref()));
        Trouble::new(kind, without_controls(&what))
    }

    /// A server's text, safe to print: without our password or a part of it.
    pub(crate) fn quote(&self, text: &str) -> String {
        let mut text = self.scrub(text);
        for form in self.password.iter().flat_map(|password| forms(password)) {
            text = without_beginning(&text, &form);
        }
        quote(&text)
    }

    /// Trouble with the server's error reply to `request`.
    pub(crate) fn refusal(&self, error: &ServerError, request: &Request) -> CallError {
        // Our scripts report the claim, and the type of its key.
        let mut details = error.details().unwrap_or_default().split_whitespace();
        let position = details.next().and_then(|word| word.parse::<usize>().ok());
        let claim = position.and_then(|i| request.claims.get(i.checked_sub(1)?));
        let name = claim.or(request.claims.first()).map(|claim| &claim.name);
        let trouble = match (error.code(), name) {
            ("FOREIGN" | "WRONGTYPE", Some(name)) => {
                let what = kind_of_key(claim.and(details.next()));
                self.trouble(
                    TroubleKind::ForeignType,
                    format!(
                        "holds {what} under the key `{name}`; use another name or delete that key"
                    ),
                )
            }
            ("DAMAGED", Some(name)) => {
                let record = record_key(name.as_str());
                self.trouble(
                    TroubleKind::Other,
                    format!(
                        "has a damaged record, or one of a newer ringfence, under `{}`; \
                         delete it once no holder of `{name}` is left",
                        record.escape_debug()
                    ),
                )
            }
            _ => self.of_error(error, Some(request)),
        };
        if broke_off(error) {
            CallError::Unknown(trouble)
        } else {
            CallError::Refused(trouble)
        }
    }

    /// Trouble with an error reply of the server to any request.
    pub(crate) fn server_error(&self, error: &ServerError) -> Trouble {
        self.of_error(error, None)
    }

    fn of_error(&self, error: &ServerError, request: Option<&Request>) -> Trouble {
        let details = error.details().unwrap_or_default();
        match is_denial(error.code(), details) {
            true => self.denied(error.code(), details, request),
            false => self.code(error.code(), details),
        }
    }

    fn code(&self, code: &str, details: &str) -> Trouble {
        if is_denial(code, details) {
            return self.denied(code, details, None);
        }
        let quoted = self.quote(&format!("{code} {details}"));
        let (kind, what) = match code {
            "NOAUTH" => (
                TroubleKind::Denied,
                format!(
                    "asks for a password; put it into the URL as redis://:PASSWORD@… ({quoted})"
                ),
            ),
            "WRONGPASS" => (
                TroubleKind::Denied,
                format!("refuses the user or the password in the URL ({quoted})"),
            ),
            "LOADING" => (TroubleKind::Loading, "is still reading its data".to_owned()),
            "READONLY" | "MASTERDOWN" => (
                TroubleKind::Replica,
                format!(
                    "is a replica, and replicas do not vote; name its master instead ({quoted})"
                ),
            ),
            "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" | "TRYAGAIN" => (
                TroubleKind::Cluster,
                format!("runs in cluster mode; locks need independent masters ({quoted})"),
            ),
            "OOM" => (
                TroubleKind::Other,
                format!("has no memory left for locks; raise its maxmemory ({quoted})"),
            ),
            "MISCONF" | "NOREPLICAS" | "BUSY" => (
                TroubleKind::Other,
                format!("does not accept writes at present ({quoted})"),
            ),
            "DAMAGED" => return self.damaged_birth(),
            "WRONGTYPE" => (
                TroubleKind::ForeignType,
                format!("has a key `{BORN_KEY}` of another program; delete that key"),
            ),
            _ if details.contains(NO_SUCH_DATABASE) => (
                TroubleKind::Database,
                format!(
                    "has no database with the number in its URL ({quoted}); use a lower number, or \
                     raise `databases` in the server's configuration"
                ),
            ),
            _ => (
                TroubleKind::Other,
                format!("answered with an error: {quoted}"),
            ),
        };
        self.trouble(kind, what)
    }

    /// The birth record `text`, or the trouble with one that this client cannot use. `sentinels`:
    /// whether the client finds the server through Sentinels.
    pub(crate) fn read_birth(&self, text: &str, sentinels: bool) -> Result<BirthRecord, Trouble> {
        let what = match BirthRecord::parse(text) {
            Ok(born) if born.server.epoch.is_none() || sentinels => return Ok(born),
            Ok(_) => format!(
                "is used by clients that find it through Sentinels, and this client has none; give \
                 it the same Sentinels, or stop those clients and delete the key `{BORN_KEY}`"
            ),
            Err(Unreadable::Damaged) => return Err(self.damaged_birth()),
            Err(Unreadable::Version(found)) => format!(
                "has a birth record of version {found}, but this client only knows version \
                 {VERSION}; upgrade all clients to one version of ringfence, stop them all, \
                 then delete the key `{BORN_KEY}` on every node"
            ),
        };
        Err(self.trouble(TroubleKind::Version, what))
    }

    /// Trouble with a birth record that cannot be read.
    fn damaged_birth(&self) -> Trouble {
        let what =
            format!("has a damaged birth record; stop all clients and delete the key `{BORN_KEY}`");
        self.trouble(TroubleKind::Other, what)
    }

    /// Trouble with a connection that could not be made or used.
    pub(crate) fn connection(&self, error: &RedisError) -> Trouble {
        if let Some(excess) = Excess::of(error) {
            return self.trouble(excess.kind(), excess.what());
        }
        match error.kind() {
            ErrorKind::Parse => self.garbage(),
            ErrorKind::AuthenticationFailed => {
                let quoted = self.quote(error.detail().unwrap_or("authentication failed"));
                self.trouble(
                    TroubleKind::Denied,
                    format!("refuses the user or the password in the URL ({quoted})"),
                )
            }
            ErrorKind::Io if error.is_connection_dropped() && !error.is_connection_refusal() => {
                self.hung_up(&error.to_string())
            }
            ErrorKind::Io => self.unreachable(&error.to_string()),
            _ => match error.code() {
                Some(code) => self.code(code, error.detail().unwrap_or_default()),
                None => self.trouble(
                    TroubleKind::Other,
                    format!("cannot be used: {}", self.quote(&error.to_string())),
                ),
            },
        }
    }

    /// Trouble with a connection that ended while it was in use.
    pub(crate) fn lost(&self, error: &RedisError) -> Trouble {
        let trouble = self.connection(error);
        match trouble.kind {
            TroubleKind::Unreachable => self.trouble(
                TroubleKind::Disconnected,
                "ended the connection before it answered",
            ),
            _ => trouble,
        }
    }

    /// Trouble with a server that cannot be reached.
    pub(crate) fn unreachable(&self, why: &str) -> Trouble {
        let why = self.quote(why);
        let has = |part: &str| why.contains(part);
        let (kind, hint) = if has("CaUsedAsEndEntity") {
            let what = "presents the certificate of an authority as its own; give the server a \
                        certificate that the authority signed";
            return self.trouble(TroubleKind::Tls, what);
        } else if has("not valid for name") || has("NotValidForName") {
            (
                TroubleKind::Tls,
                "; connect by a name that is in its certificate",
            )
        } else if has("certificate") {
            (
                TroubleKind::Tls,
                "; if your own authority signed its certificate, name that authority with ?ca=/path.pem",
            )
        } else if has("InvalidContentType") || has("corrupt message") {
            (
                TroubleKind::Tls,
                "; it does not use TLS on this port: use redis://, or its TLS port",
            )
        } else if has(LOOKUP_FAILED) && !TRY_AGAIN.iter().any(|text| has(text)) {
            (TroubleKind::NoSuchHost, "; correct the host name")
        } else {
            (TroubleKind::Unreachable, "")
        };
        self.trouble(kind, format!("cannot be reached: {why}{hint}"))
    }

    /// Trouble with a server that did not answer our login within `limit`.
    pub(crate) fn no_login(&self, limit: Duration) -> Trouble {
        let hint = match self.uses_tls {
            Some(true) => "; if it does not use TLS on this port, use redis://",
            _ => "",
        };
        self.unreachable(&format!("no connection and login after {limit:?}{hint}"))
    }

    /// Trouble with a server that closed a connection.
    fn hung_up(&self, why: &str) -> Trouble {
        let hint = match self.uses_tls {
            Some(false) => "; if it expects TLS on this port, use rediss://",
            _ => "",
        };
        let what = format!("closed the connection: {}{hint}", self.quote(why));
        self.trouble(TroubleKind::Unreachable, what)
    }

    /// Trouble with a server that does not speak the protocol of Redis.
    pub(crate) fn garbage(&self) -> Trouble {
        let hint = match self.uses_tls {
            Some(false) => ", or it expects TLS: then use rediss://",
            _ => "",
        };
        let what = format!("what answers on {} is no Redis server{hint}", self.node);
        Trouble::new(TroubleKind::Garbage, self.scrub(&what))
    }

    fn scrub(&self, text: &str) -> String {
        let forms = self.password.iter().flat_map(|password| forms(password));
        forms.fold(text.to_owned(), |text, form| text.replace(&form, "…"))
    }
}

/// The forms of a password in a text: plain, as servers quote it, as in a URL, and escaped. The
/// longest first, so that no part of one is left.
fn forms(password: &str) -> Vec<String> {
    let encoded = encode(password);
    let mut forms = vec![
        password.to_owned(),
        // Servers replace line ends in their errors.
        password.replace(['\r', '\n'], " "),
        encoded.to_lowercase(),
        encoded,
        password.escape_debug().to_string(),
        password.escape_default().to_string(),
    ];
    forms.retain(|form| !form.is_empty());
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    forms.dedup();
    forms
}

/// `text` without the beginning of `secret`, which is left where a server cut its text off.
fn without_beginning(text: &str, secret: &str) -> String {
    let beginning: String = secret.chars().take(BEGINNING_CHARS).collect();
    // The beginning of a short secret may be an ordinary word.
    if secret.chars().count() < 2 * BEGINNING_CHARS {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(&beginning) {
        kept.push_str(&rest[..at]);
        kept.push('…');
        let alike = rest[at..].chars().zip(secret.chars());
        let alike = alike.take_while(|(shown, kept)| shown == kept);
        let bytes: usize = alike.map(|(shown, _)| shown.len_utf8()).sum();
        rest = &rest[at + bytes..];
    }
    kept + rest
}

/// `text` with its control characters escaped.
fn without_controls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => shown.extend(c.escape_debug()),
            false => shown.push(c),
        }
    }
    shown
}

/// Whether a script failed after it had started. Errors before the start have codes of their own;
/// an error with a line of the script may come after the script's first write.
fn broke_off(error: &ServerError) -> bool {
    error.code() == "ERR"
        && error
            .details()
            .is_some_and(|text| text.contains("user_script"))
}

/// Whether the error shows that the server is no longer the master of our handshake: it has become
/// a replica, or loads other data. Then it has carried out nothing. Servers before 7.0 report it as
/// an error in a script.
pub(crate) fn is_newborn(error: &ServerError) -> bool {
    match error.code() {
        "READONLY" | "MASTERDOWN" | "LOADING" => true,
        "ERR" => error
            .details()
            .is_some_and(|text| text.contains("user_script") && text.contains("-READONLY ")),
        _ => false,
    }
}

/// Describes a key of the type `kind`: not a lock of ours, nor of another library with plain keys.
fn kind_of_key(kind: Option<&str>) -> &'static str {
    match kind {
        Some("hash") => "a hash, which is no lock, or one of Redisson's,",
        Some("list") => "a list, which is no lock,",
        Some("set") => "a set, which is no lock,",
        Some("zset") => "a sorted set (zset), which is no lock,",
        Some("stream") => "a stream, which is no lock,",
        // The name of a module's type is not trusted.
        _ => "something that is not a lock",
    }
}

/// A text from outside, safe to print.
pub(crate) fn quote(text: &str) -> String {
    let mut shown: String = text.trim().chars().take(QUOTE_MAX_CHARS).collect();
    if shown.len() < text.trim().len() {
        shown.push('…');
    }
    shown
        .escape_debug()
        .to_string()
        .replace("\\'", "'")
        .replace("\\\"", "\"")
}

#[cfg(test)]
mod tests;
