//! Logins as clients send them, cut short and scrambled.

use super::*;

fn login_bytes(extra: u32, tail: &[u8]) -> Vec<u8> {
    let capabilities = capability::PROTOCOL_41 | capability::SECURE_CONNECTION | extra;
    let mut bytes = capabilities.to_le_bytes().to_vec();
    bytes.extend_from_slice(&(16_u32 << 20).to_le_bytes());
    bytes.push(45);
    bytes.extend_from_slice(&[0; 23]);
    bytes.extend_from_slice(tail);
    bytes
}

#[test]
fn a_login_with_database_and_method_is_understood() {
    let extra = capability::CONNECT_WITH_DB | capability::PLUGIN_AUTH | capability::PLUGIN_AUTH_LENENC;
    let login = Login::parse(&login_bytes(extra, b"root\0\x03abctest\0caching_sha2_password\0")).unwrap();
    assert_eq!(login.user, "root");
    assert_eq!(login.response, b"abc");
    assert_eq!(login.database.as_deref(), Some("test"));
    assert_eq!(login.method, Some(Method::CachingSha2));
    assert_eq!(login.charset, 45);
}

#[test]
fn a_login_that_ends_early_is_malformed_or_smaller_but_never_a_panic() {
    let extra = capability::CONNECT_WITH_DB | capability::PLUGIN_AUTH;
    let bytes = login_bytes(extra, b"root\0\x14aaaaaaaaaaaaaaaaaaaatest\0mysql_native_password\0");
    for cut in 0..bytes.len() {
        if let Ok(login) = Login::parse(&bytes[..cut]) {
            assert_eq!(login.user, "root");
            assert_eq!(login.response.len(), 20);
        }
    }
    assert!(Login::parse(&bytes).is_ok());
}

#[test]
fn old_protocol_tls_and_broken_text_are_refused() {
    assert!(Login::parse(&[0; 64]).is_err());
    assert!(Login::parse(&login_bytes(capability::SSL, b"root\0\0")).is_err());
    assert!(Login::parse(&login_bytes(0, b"\xff\xfe\0\0")).is_err());
}

#[test]
fn random_logins_never_panic() {
    let mut seed = 7_u64;
    for _ in 0..5000 {
        let mut tail = Vec::new();
        for _ in 0..seed % 90 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            tail.push(seed.to_be_bytes()[0]);
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        let extra = u32::try_from(seed >> 40).unwrap() & capability::OFFERED;
        let _outcome = Login::parse(&login_bytes(extra, &tail));
        let _outcome = Login::parse_change(&tail, extra);
    }
}

#[test]
fn only_the_right_password_is_proved() {
    let nonce = nonce();
    let native = mysql_native_password::scramble_native(&nonce, b"secret").unwrap();
    let sha2 = caching_sha2_password::scramble_sha256(&nonce, b"secret").unwrap();
    assert!(Method::Native.proves(&native, "secret", &nonce));
    assert!(Method::CachingSha2.proves(&sha2, "secret", &nonce));
    for (method, response) in [
        (Method::Native, &native[..]),
        (Method::CachingSha2, &sha2[..]),
        (Method::Native, &[]),
        (Method::CachingSha2, &[0]),
    ] {
        assert!(!method.proves(response, "Secret", &nonce));
    }
    assert!(Method::Native.proves(b"", "", &nonce));
    assert!(!Method::Native.proves(&native, "", &nonce));
}

#[test]
fn without_users_only_root_on_loopback_needs_no_password() {
    let none = Users::default();
    assert_eq!(none.password("root", true), Some(""));
    assert_eq!(none.password("root", false), None);
    assert_eq!(none.password("eve", true), None);
    let some = Users::new(BTreeMap::from([("ann".to_string(), "pw".to_string())]));
    assert_eq!(some.password("ann", false), Some("pw"));
    assert_eq!(some.password("root", true), None);
}
