//! What strangers send: each gets a clear MySQL error, and the server stays up.

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{DEPRECATE_EOF, Raw, connect, open, rows};

#[tokio::test]
async fn an_unknown_command_is_an_error_and_the_connection_goes_on() {
    let (tidemill, address) = open(|_| {}).await;
    let mut raw = Raw::logged_in(address, 0).await;
    for command in [0, 5, 6, 7, 8, 11, 13, 15, 18, 19, 28, 29, 30, 32, 99, 0xfa, 0xff] {
        raw.command(&[command]).await;
        let (code, text) = raw.error().await;
        assert_eq!((code, text.as_str()), (1047, "Unknown command"), "{command}");
    }
    raw.command(&[]).await;
    assert_eq!(raw.error().await.0, 1835);
    raw.ping().await;
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn malformed_bodies_of_commands_are_errors_and_the_connection_goes_on() {
    let (tidemill, address) = open(|_| {}).await;
    let mut raw = Raw::logged_in(address, 0).await;
    for (payload, code) in [
        (&b"\x03SELECT '\xff\xfe'"[..], 1300),
        (b"\x03", 1065),
        (b"\x03   ", 1065),
        (b"\x03;;", 1065),
        (b"\x03SELECT ?", 1064),
        (b"\x03SELECT 1; SELECT 2", 1064),
        (b"\x02no_such_database", 1049),
        (b"\x02\xff\xff", 1300),
        (b"\x17", 1835),
        (b"\x17\x01\0\0\0\0\x01\0\0\0", 1243),
        (b"\x1a\x01\0", 1835),
        (b"\x1a\x09\0\0\0", 1243),
        (b"\x1b\x07\0", 1047),
        (b"\x1b", 1835),
        (b"\x0c\x01", 1835),
        (b"\x0c\xff\xff\xff\xff", 1094),
        (b"\x04no_zero", 1835),
        (b"\x04nothing\0", 1046),
        (b"\x16\xff", 1300),
        (b"\x16", 1065),
        (b"\x16SELECT 1; SELECT 2", 1064),
    ] {
        raw.command(payload).await;
        let (found, text) = raw.error().await;
        assert_eq!(found, code, "{payload:?}: {text}");
        assert!(!text.is_empty());
    }
    raw.ping().await;
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_prepared_statement_with_broken_parameters_is_an_error_and_can_be_executed_again() {
    let (tidemill, address) = open(|_| {}).await;
    let mut raw = Raw::logged_in(address, DEPRECATE_EOF).await;
    raw.command(b"\x16SELECT ?").await;
    let prepared = raw.read().await.unwrap();
    assert_eq!(prepared[0], 0);
    let id = prepared[1..5].to_vec();
    let n_definitions =
        u16::from_le_bytes([prepared[5], prepared[6]]) + u16::from_le_bytes([prepared[7], prepared[8]]);
    for _ in 0..n_definitions {
        raw.read().await.unwrap();
    }
    let execute = |tail: &[u8]| [&[0x17][..], &id, &[0, 1, 0, 0, 0], tail].concat();
    for tail in
        [&b""[..], b"\0", b"\0\x01", b"\0\x01\xfd\0", b"\0\x01\xfd\0\x09abc", b"\0\0", b"\0\x01\xc8\0\0"]
    {
        raw.command(&execute(tail)).await;
        assert_eq!(raw.error().await.0, 1835, "{tail:?}");
    }
    // Long data for a parameter that is not there is told at the next execution.
    raw.command(&[&[0x18][..], &id, &[9, 0], b"data"].concat()).await;
    raw.command(&execute(b"\0\x01\xfd\0\x01a")).await;
    assert_eq!(raw.error().await.0, 1210);
    raw.command(&[&[0x18][..], &id, &[0, 0], b"long "].concat()).await;
    raw.command(&[&[0x18][..], &id, &[0, 0], b"data"].concat()).await;
    raw.command(&execute(b"\0\x01\xfc\0")).await;
    let header = raw.read().await.unwrap();
    assert_eq!(header, [1], "one column");
    raw.read().await.unwrap();
    let row = raw.read().await.unwrap();
    assert_eq!(&row, b"\0\0\x09long data");
    let end = raw.read().await.unwrap();
    assert_eq!(end[0], 0xfe);
    raw.ping().await;
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn packets_out_of_order_end_the_connection_with_an_error() {
    let (tidemill, address) = open(|_| {}).await;
    let mut raw = Raw::logged_in(address, 0).await;
    raw.sequence = 5;
    raw.write(&[14]).await;
    assert_eq!(raw.error().await.0, 1156);
    assert!(raw.read().await.is_none());
    connect(address).await.disconnect().await.unwrap();
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_half_closed_connection_gets_its_answer() {
    let (tidemill, address) = open(|_| {}).await;
    let mut raw = Raw::logged_in(address, DEPRECATE_EOF).await;
    raw.command(b"\x03SELECT 42").await;
    raw.stream.shutdown().await.unwrap();
    assert_eq!(raw.read().await.unwrap(), [1]);
    raw.read().await.unwrap();
    assert_eq!(raw.read().await.unwrap(), b"\x0242");
    assert_eq!(raw.read().await.unwrap()[0], 0xfe);
    assert!(raw.read().await.is_none());
    // Closed inside a packet.
    let mut raw = Raw::logged_in(address, 0).await;
    raw.stream.write_all(&[100, 0, 0, 0, 3, b'S']).await.unwrap();
    raw.stream.shutdown().await.unwrap();
    assert_eq!(raw.error().await.0, 1158);
    assert!(raw.read().await.is_none());
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn logins_that_are_none_are_refused() {
    let (tidemill, address) = open(|_| {}).await;
    for login in [&b""[..], b"\0", &[0; 40], &[0xff; 40], b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let mut raw = Raw::greeted(address).await;
        raw.sequence = 1;
        raw.write(login).await;
        assert_eq!(raw.error().await.0, 1043, "{login:?}");
        assert!(raw.read().await.is_none());
    }
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn random_bytes_never_stop_the_server() {
    let (tidemill, address) = open(|_| {}).await;
    let mut random = StdRng::seed_from_u64(42);
    for round in 0..200 {
        let mut bytes = vec![0; random.random_range(1..200)];
        random.fill_bytes(&mut bytes);
        if round % 2 == 0 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = Vec::new();
            // The server may reset the connection over bytes it did not read.
            let _ended = stream.read_to_end(&mut answer).await;
        } else {
            // Well framed, so that the bytes reach the commands.
            let mut raw = Raw::logged_in(address, 0).await;
            bytes[0] %= 32;
            if [1, 17].contains(&bytes[0]) {
                continue;
            }
            raw.command(&bytes).await;
            raw.stream.shutdown().await.unwrap();
            while raw.read().await.is_some() {}
        }
    }
    let mut conn = connect(address).await;
    assert_eq!(rows(&mut conn, "SELECT 1").await, [["1"]]);
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn connections_beyond_the_limit_are_told_so() {
    let (tidemill, address) = open(|config| config.connections_max = 2).await;
    let first = Raw::logged_in(address, 0).await;
    let mut second = Raw::logged_in(address, 0).await;
    let mut third = Raw { stream: TcpStream::connect(address).await.unwrap(), sequence: 0 };
    assert_eq!(third.error().await, (1040, "Too many connections".to_owned()));
    assert!(third.read().await.is_none());
    drop(first);
    // The server notices that the first has left.
    tokio::time::timeout(std::time::Duration::from_secs(20), async {
        loop {
            let mut raw = Raw { stream: TcpStream::connect(address).await.unwrap(), sequence: 0 };
            if raw.read().await.is_some_and(|greeting| greeting[0] == 10) {
                break;
            }
        }
    })
    .await
    .unwrap();
    second.ping().await;
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_packet_beyond_the_limit_is_error_1153_and_the_connection_goes_on() {
    let (tidemill, address) = open(|config| config.max_allowed_packet = 1 << 20).await;
    let mut raw = Raw::logged_in(address, 0).await;
    let mut statement = b"\x03SELECT '".to_vec();
    statement.resize(2 << 20, b'x');
    raw.command(&statement).await;
    let (code, text) = raw.error().await;
    assert_eq!(code, 1153, "{text}");
    raw.ping().await;
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_statement_of_sixty_four_megabytes_is_the_longest() {
    let (tidemill, address) = open(|_| {}).await;
    let mut raw = Raw::logged_in(address, 0).await;
    let limit = 64 << 20;
    let (before, after) = (b"\x03SELECT LENGTH('", b"')");
    for length in [limit, limit + 1] {
        let n_letters = length - before.len() - after.len();
        let statement = [&before[..], &vec![b'x'; n_letters], &after[..]].concat();
        assert_eq!(statement.len(), length);
        raw.command(&statement).await;
        if length > limit {
            let (code, text) = raw.error().await;
            assert_eq!(code, 1153, "{length} bytes: {text}");
        } else {
            let n_columns = raw.read().await.unwrap();
            assert_eq!(n_columns, [1], "{length} bytes");
            // A column, its end, the row, the end.
            let mut packets = Vec::new();
            for _ in 0..4 {
                packets.push(raw.read().await.unwrap());
            }
            let shown = n_letters.to_string();
            assert_eq!(packets[2][1..], *shown.as_bytes(), "{length} bytes");
        }
        raw.ping().await;
    }
    tidemill.shutdown().await.unwrap();
}
