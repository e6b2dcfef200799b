//! Who is there: greeting, login, and the two password methods, without transport security.
//!
//! A password never travels: both methods send a hash over the greeting's nonce. The server knows the
//! plain passwords from its configuration, so `caching_sha2_password` always takes its short way.

use std::collections::BTreeMap;

use mysql_common::auth::plugins::{caching_sha2_password, mysql_native_password};

use super::wire::{Malformed, Reader};

/// The bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 20;

/// What client and server may agree on (the flags of `CapabilityFlags` that matter here).
pub(crate) mod capability {
    pub(crate) const LONG_PASSWORD: u32 = 1;
    pub(crate) const FOUND_ROWS: u32 = 1 << 1;
    pub(crate) const LONG_FLAG: u32 = 1 << 2;
    pub(crate) const CONNECT_WITH_DB: u32 = 1 << 3;
    pub(crate) const ODBC: u32 = 1 << 6;
    pub(crate) const IGNORE_SPACE: u32 = 1 << 8;
    pub(crate) const PROTOCOL_41: u32 = 1 << 9;
    pub(crate) const INTERACTIVE: u32 = 1 << 10;
    pub(crate) const SSL: u32 = 1 << 11;
    pub(crate) const IGNORE_SIGPIPE: u32 = 1 << 12;
    pub(crate) const TRANSACTIONS: u32 = 1 << 13;
    pub(crate) const RESERVED: u32 = 1 << 14;
    pub(crate) const SECURE_CONNECTION: u32 = 1 << 15;
    pub(crate) const MULTI_STATEMENTS: u32 = 1 << 16;
    pub(crate) const MULTI_RESULTS: u32 = 1 << 17;
    pub(crate) const PS_MULTI_RESULTS: u32 = 1 << 18;
    pub(crate) const PLUGIN_AUTH: u32 = 1 << 19;
    pub(crate) const CONNECT_ATTRS: u32 = 1 << 20;
    pub(crate) const PLUGIN_AUTH_LENENC: u32 = 1 << 21;
    pub(crate) const DEPRECATE_EOF: u32 = 1 << 24;

    /// What this server offers.
    pub(crate) const OFFERED: u32 = LONG_PASSWORD
        | FOUND_ROWS
        | LONG_FLAG
        | CONNECT_WITH_DB
        | ODBC
        | IGNORE_SPACE
        | PROTOCOL_41
        | INTERACTIVE
        | IGNORE_SIGPIPE
        | TRANSACTIONS
        | RESERVED
        | SECURE_CONNECTION
        | MULTI_STATEMENTS
        | MULTI_RESULTS
        | PS_MULTI_RESULTS
        | PLUGIN_AUTH
        | CONNECT_ATTRS
        | PLUGIN_AUTH_LENENC
        | DEPRECATE_EOF;
}

/// A password method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Native,
    CachingSha2,
}

impl Method {
    /// The name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Method::Native => "mysql_native_password",
            Method::CachingSha2 => "caching_sha2_password",
        }
    }

    fn of_name(name: &[u8]) -> Option<Method> {
        [Method::Native, Method::CachingSha2].into_iter().find(|method| method.name().as_bytes() == name)
    }

    /// Whether a response proves the password.
    pub(crate) fn proves(self, response: &[u8], password: &str, nonce: &[u8; NONCE_BYTES]) -> bool {
        if password.is_empty() {
            return response.is_empty() || response == [0];
        }
        match self {
            Method::Native => mysql_native_password::scramble_native(nonce, password.as_bytes())
                .is_some_and(|expected| same(&expected, response)),
            Method::CachingSha2 => caching_sha2_password::scramble_sha256(nonce, password.as_bytes())
                .is_some_and(|expected| same(&expected, response)),
        }
    }
}

/// Compares without telling by its time where the first difference is.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
}

/// Who may log in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users {
    passwords: BTreeMap<String, String>,
}

impl Users {
    /// Users with their passwords; without any, `root` needs none from a loopback address.
    pub(crate) fn new(passwords: BTreeMap<String, String>) -> Users {
        Users { passwords }
    }

    /// The password of a user, `None` if there is no such user for this peer.
    pub(crate) fn password(&self, user: &str, peer_is_loopback: bool) -> Option<&str> {
        if self.passwords.is_empty() {
            return (user == "root" && peer_is_loopback).then_some("");
        }
        self.passwords.get(user).map(String::as_str)
    }
}

/// A fresh nonce without zero bytes, as some clients treat it as text.
pub(crate) fn nonce() -> [u8; NONCE_BYTES] {
    std::array::from_fn(|_| rand::random_range(33..127_u8))
}

/// The first packet of a connection.
pub(crate) fn greeting(
    version: &str,
    connection_id: u32,
    nonce: &[u8; NONCE_BYTES],
    charset: u8,
    status: u16,
) -> Vec<u8> {
    let offered = capability::OFFERED.to_le_bytes();
    let mut out = vec![10];
    out.extend_from_slice(version.as_bytes());
    out.push(0);
    out.extend_from_slice(&connection_id.to_le_bytes());
    out.extend_from_slice(&nonce[..8]);
    out.push(0);
    out.extend_from_slice(&offered[..2]);
    out.push(charset);
    out.extend_from_slice(&status.to_le_bytes());
    out.extend_from_slice(&offered[2..]);
    out.push(21);
    out.extend_from_slice(&[0; 10]);
    out.extend_from_slice(&nonce[8..]);
    out.push(0);
    out.extend_from_slice(Method::Native.name().as_bytes());
    out.push(0);
    out
}

/// Asks for another method's response.
pub(crate) fn switch_request(method: Method, nonce: &[u8; NONCE_BYTES]) -> Vec<u8> {
    let mut out = vec![0xfe];
    out.extend_from_slice(method.name().as_bytes());
    out.push(0);
    out.extend_from_slice(nonce);
    out.push(0);
    out
}

/// What a client says about itself, at login or with COM_CHANGE_USER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Login {
    /// What the client can do; what was agreed, after `parse`.
    pub(crate) capabilities: u32,
    /// The collation the client wants.
    pub(crate) charset: u16,
    pub(crate) user: String,
    pub(crate) response: Vec<u8>,
    pub(crate) database: Option<String>,
    /// The method of `response`; `None` if it is one we do not know.
    pub(crate) method: Option<Method>,
}

fn text(bytes: &[u8], what: &'static str) -> Result<String, Malformed> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed(what))
}

impl Login {
    /// Parses the handshake response.
    pub(crate) fn parse(payload: &[u8]) -> Result<Login, Malformed> {
        use capability::{CONNECT_WITH_DB, PLUGIN_AUTH, PLUGIN_AUTH_LENENC, PROTOCOL_41, SECURE_CONNECTION};
        let mut reader = Reader::new(payload);
        let capabilities = reader.u32("capabilities of the client")?;
        if capabilities & PROTOCOL_41 == 0 {
            return Err(Malformed("a client that speaks protocol 4.1"));
        }
        if capabilities & capability::SSL != 0 {
            return Err(Malformed("a connection without TLS, which the server did not offer"));
        }
        let capabilities = capabilities & capability::OFFERED;
        reader.u32("maximal packet size of the client")?;
        let charset = u16::from(reader.u8("character set of the client")?);
        reader.bytes(23, "filler of the login")?;
        let user = text(reader.zero_bytes("user name")?, "user name in UTF-8")?;
        let response = if capabilities & PLUGIN_AUTH_LENENC != 0 {
            reader.lenenc_bytes("authentication response")?
        } else if capabilities & SECURE_CONNECTION != 0 {
            let length = reader.u8("length of the authentication response")?;
            reader.bytes(usize::from(length), "authentication response")?
        } else {
            reader.zero_bytes("authentication response")?
        };
        let response = response.to_vec();
        // Some clients leave out what follows although they announced it.
        let mut database = None;
        if capabilities & CONNECT_WITH_DB != 0 && !reader.is_empty() {
            database = Some(text(reader.zero_bytes("database name")?, "database name in UTF-8")?);
        }
        let mut method = Some(Method::Native);
        if capabilities & PLUGIN_AUTH != 0 && !reader.is_empty() {
            method = Method::of_name(reader.zero_bytes("authentication method")?);
        }
        let database = database.filter(|name| !name.is_empty());
        Ok(Login { capabilities, charset, user, response, database, method })
    }

    /// Parses COM_CHANGE_USER (without its command byte); the capabilities stay what they were.
    pub(crate) fn parse_change(payload: &[u8], capabilities: u32) -> Result<Login, Malformed> {
        let mut reader = Reader::new(payload);
        let user = text(reader.zero_bytes("user name")?, "user name in UTF-8")?;
        let length = reader.u8("length of the authentication response")?;
        let response = reader.bytes(usize::from(length), "authentication response")?.to_vec();
        let database = text(reader.zero_bytes("database name")?, "database name in UTF-8")?;
        let charset = if reader.is_empty() { 0 } else { reader.u16("character set of the client")? };
        let mut method = Some(Method::Native);
        if capabilities & capability::PLUGIN_AUTH != 0 && !reader.is_empty() {
            method = Method::of_name(reader.zero_bytes("authentication method")?);
        }
        let database = Some(database).filter(|name| !name.is_empty());
        Ok(Login { capabilities, charset, user, response, database, method })
    }
}

#[cfg(test)]
mod tests;
