//! Calendar edges, times as text, and zones.

use tidb::{
    CivilTime, Parsed, Zone, format_date, format_double, format_float, format_time, pack_time, parse_time,
    unpack_date, unpack_time,
};

fn local(text: &str) -> Option<String> {
    match parse_time(text)? {
        Parsed::Local(micros) => Some(format_time(CivilTime::from_micros(micros).unwrap(), 6)),
        Parsed::Instant(micros) => {
            Some(format!("{} UTC", format_time(CivilTime::from_micros(micros).unwrap(), 6)))
        }
    }
}

fn check(text: &str, expected: &str) {
    assert_eq!(local(text).as_deref(), Some(expected), "{text}");
}

#[test]
fn times_are_read_in_mysqls_forms() {
    check("2021-01-02 03:04:05", "2021-01-02 03:04:05.000000");
    check("2021-01-02T03:04:05.5", "2021-01-02 03:04:05.500000");
    check("2021-1-2", "2021-01-02 00:00:00.000000");
    check("2021/01/02 3:4", "2021-01-02 03:04:00.000000");
    check("21-01-02", "2021-01-02 00:00:00.000000");
    check("70-01-02", "1970-01-02 00:00:00.000000");
    check("20210102", "2021-01-02 00:00:00.000000");
    check("210102", "2021-01-02 00:00:00.000000");
    check("20210102030405", "2021-01-02 03:04:05.000000");
    check("20210102030405.123456", "2021-01-02 03:04:05.123456");
    check("2021-01-02 03:04:05.1234565", "2021-01-02 03:04:05.123457");
    check("2021-12-31 23:59:59.9999995", "2022-01-01 00:00:00.000000");
    check("0000-01-01", "0000-01-01 00:00:00.000000");
    check("9999-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999");
    check(" 2021-01-02 ", "2021-01-02 00:00:00.000000");
    check("2021-01-02 03:04:05+02:00", "2021-01-02 01:04:05.000000 UTC");
    check("2020-02-29", "2020-02-29 00:00:00.000000");
}

#[test]
fn what_is_no_time_is_refused() {
    for text in [
        "",
        "x",
        "2021-13-01",
        "2021-02-29",
        "2021-00-01",
        "2021-01-00",
        "0000-00-00",
        "0000-00-00 00:00:00",
        "2021-01-02 24:00:00",
        "2021-01-02 03:60:00",
        "2021-01-02 03:04:05 x",
        "2021-01-02x",
        "2021-01",
        "9999-12-31 23:59:59.9999999",
        "2021-01-02 03:04:05+15:00",
        "12345",
        "123456789",
    ] {
        assert_eq!(local(text), None, "{text}");
    }
}

#[test]
fn zero_dates_are_refused_by_name() {
    for packed in [0, (2021 * 13) << 46, (2021 * 13 + 1) << 46] {
        let error = unpack_time(packed).unwrap_err();
        assert!(error.message().contains("zero dates"), "{error}");
        assert!(unpack_date(packed).is_err());
    }
}

#[test]
fn packed_nonsense_is_refused() {
    let good = pack_time(1_609_556_645_000_006).unwrap();
    assert!(unpack_date(good).is_err(), "a date has no time of day");
    for broken in
        [good | 63 << 24, good | 31 << 36, good | 0xff_ffff, u64::MAX, (2021 * 13 + 2) << 46 | 30 << 41]
    {
        assert!(unpack_time(broken).is_err(), "{broken:#x}");
    }
    assert!(pack_time(i64::MAX).is_err());
    assert!(pack_time(i64::MIN).is_err());
}

#[test]
fn zones_convert_both_ways() {
    let berlin: Zone = "Europe/Berlin".parse().unwrap();
    let micros = |text: &str| match parse_time(text) {
        Some(Parsed::Local(micros)) => micros,
        other => panic!("{other:?}"),
    };
    let winter = micros("2021-01-02 12:00:00");
    assert_eq!(berlin.to_instant(winter), Some(winter - 3_600_000_000));
    assert_eq!(berlin.to_local(winter - 3_600_000_000), Some(winter));
    // The clock goes from 02:00 to 03:00.
    assert_eq!(berlin.to_instant(micros("2021-03-28 02:30:00")), None);
    // The clock goes from 03:00 back to 02:00: of two instants the earlier, in summer time.
    let fold = micros("2021-10-31 02:30:00");
    assert_eq!(berlin.to_instant(fold), Some(fold - 7_200_000_000));
    let offset: Zone = "+05:30".parse().unwrap();
    assert_eq!(offset.to_instant(winter), Some(winter - 19_800_000_000));
    assert_eq!(offset.to_string(), "+05:30");
    assert_eq!("-03:00".parse::<Zone>().unwrap().to_string(), "-03:00");
    assert_eq!("europe/berlin".parse::<Zone>().unwrap(), berlin);
    assert_eq!("SYSTEM".parse::<Zone>().unwrap(), Zone::UTC);
    for unknown in ["Mars/Olympus", "+25:00", "", "+1"] {
        assert_eq!(unknown.parse::<Zone>().unwrap_err().mysql_code(), Some(1298), "{unknown}");
    }
}

#[test]
fn floats_print_as_mysql_prints_them() {
    let cases =
        [(0.1, "0.1"), (100.0, "100"), (1e14, "100000000000000"), (1e15, "1e15"), (1.5e300, "1.5e300")];
    for (value, expected) in cases {
        assert_eq!(format_double(value), expected);
    }
    assert_eq!(format_double(-2.5), "-2.5");
    assert_eq!(format_double(1e-16), "1e-16");
    assert_eq!(format_float(0.1), "0.1");
    assert_eq!(format_date(CivilTime::from_days(-719_528).unwrap()), "0000-01-01");
}
