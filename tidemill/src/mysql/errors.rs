//! MySQL's error numbers and SQLSTATEs for what goes wrong here.
//!
//! An error that carries a number of its own keeps it; otherwise its kind decides. The state follows from
//! the number, as clients' drivers expect.

use types::{Error, ErrorKind};

/// ER_CON_COUNT_ERROR: the connection limit is reached.
pub(crate) const TOO_MANY_CONNECTIONS: u16 = 1040;
/// ER_HANDSHAKE_ERROR.
pub(crate) const BAD_HANDSHAKE: u16 = 1043;
/// ER_ACCESS_DENIED_ERROR.
pub(crate) const ACCESS_DENIED: u16 = 1045;
/// ER_NO_DB_ERROR.
pub(crate) const NO_DATABASE: u16 = 1046;
/// ER_UNKNOWN_COM_ERROR.
pub(crate) const UNKNOWN_COMMAND: u16 = 1047;
/// ER_BAD_DB_ERROR.
pub(crate) const UNKNOWN_DATABASE: u16 = 1049;
/// ER_SERVER_SHUTDOWN.
pub(crate) const SERVER_SHUTDOWN: u16 = 1053;
/// ER_PARSE_ERROR.
pub(crate) const PARSE_ERROR: u16 = 1064;
/// ER_EMPTY_QUERY.
pub(crate) const EMPTY_QUERY: u16 = 1065;
/// ER_NO_SUCH_THREAD.
pub(crate) const NO_SUCH_THREAD: u16 = 1094;
/// ER_UNKNOWN_ERROR.
pub(crate) const UNKNOWN_ERROR: u16 = 1105;
/// ER_NET_PACKET_TOO_LARGE.
pub(crate) const PACKET_TOO_LARGE: u16 = 1153;
/// ER_NET_PACKETS_OUT_OF_ORDER.
pub(crate) const PACKETS_OUT_OF_ORDER: u16 = 1156;
/// ER_NET_READ_ERROR.
pub(crate) const NET_READ_ERROR: u16 = 1158;
/// ER_NET_READ_INTERRUPTED: nothing came for `wait_timeout`.
pub(crate) const NET_READ_INTERRUPTED: u16 = 1159;
/// ER_UNKNOWN_SYSTEM_VARIABLE.
pub(crate) const UNKNOWN_VARIABLE: u16 = 1193;
/// ER_WRONG_VALUE_FOR_VAR.
pub(crate) const WRONG_VALUE_FOR_VARIABLE: u16 = 1231;
/// ER_WRONG_TYPE_FOR_VAR.
pub(crate) const WRONG_TYPE_FOR_VARIABLE: u16 = 1232;
/// ER_INCORRECT_GLOBAL_LOCAL_VAR: the variable is read-only.
pub(crate) const READ_ONLY_VARIABLE: u16 = 1238;
/// ER_UNKNOWN_STMT_HANDLER.
pub(crate) const UNKNOWN_STATEMENT: u16 = 1243;
/// ER_TRUNCATED_WRONG_VALUE.
pub(crate) const TRUNCATED_VALUE: u16 = 1292;
/// ER_INVALID_CHARACTER_STRING.
pub(crate) const INVALID_CHARACTERS: u16 = 1300;
/// ER_QUERY_INTERRUPTED.
pub(crate) const QUERY_INTERRUPTED: u16 = 1317;
/// ER_QUERY_TIMEOUT: `max_execution_time` is over.
pub(crate) const OUT_OF_TIME: u16 = 3024;
/// ER_CLIENT_INTERACTION_TIMEOUT.
pub(crate) const CLIENT_INACTIVE: u16 = 4031;
/// ER_MALFORMED_PACKET.
pub(crate) const MALFORMED_PACKET: u16 = 1835;
/// ER_TOO_MANY_CONCURRENT_TRXS is MySQL's; prepared statements have 1461.
pub(crate) const TOO_MANY_STATEMENTS: u16 = 1461;
/// TiDB's write conflict.
pub(crate) const WRITE_CONFLICT: u16 = 9007;

/// The number that a client sees.
#[must_use]
pub(crate) fn code(error: &Error) -> u16 {
    error.mysql_code().unwrap_or(match error.kind() {
        ErrorKind::Conflict => WRITE_CONFLICT,
        ErrorKind::Closed => SERVER_SHUTDOWN,
        ErrorKind::Fenced | ErrorKind::Unavailable | ErrorKind::Invalid | ErrorKind::Corrupt => UNKNOWN_ERROR,
    })
}

/// The SQLSTATE of a number, `HY000` where MySQL has no better one.
#[must_use]
pub fn sql_state(code: u16) -> &'static str {
    match code {
        1040 => "08004",
        1042 | 1043 | 1047 | 1053 | 1080 | 1081 | 1152..=1161 | 1184 | 1189 | 1190 | 1218 => "08S01",
        1058 | 1136 => "21S01",
        1222 | 1241 | 1242 => "21000",
        1406 => "22001",
        1264 | 1416 | 1690 => "22003",
        1292 | 1367 => "22007",
        1441 => "22008",
        1365 => "22012",
        1022 | 1048 | 1052 | 1062 | 1169 | 1216 | 1217 | 1451 | 1452 | 1557 | 1586 | 1761 | 1762 => "23000",
        1179 | 1207 | 1568 => "25000",
        1792 => "25006",
        1045 => "28000",
        1046 => "3D000",
        1213 => "40001",
        1050 => "42S01",
        1051 | 1109 | 1146 => "42S02",
        1082 => "42S12",
        1060 => "42S21",
        1054 | 1247 => "42S22",
        1317 => "70100",
        1265 => "01000",
        1329 => "02000",
        _ if is_syntax_or_access(code) => "42000",
        _ => "HY000",
    }
}

/// The many numbers of state 42000.
fn is_syntax_or_access(code: u16) -> bool {
    matches!(
        code,
        1044 | 1049 | 1055..=1057 | 1059 | 1061 | 1063..=1075 | 1083 | 1084 | 1090 | 1091 | 1099..=1104
            | 1106..=1108 | 1110 | 1112 | 1113 | 1115 | 1118 | 1120..=1122 | 1131..=1133 | 1138..=1145
            | 1147..=1149 | 1162..=1164 | 1166..=1168 | 1170..=1173 | 1176..=1178 | 1203 | 1211 | 1226
            | 1227 | 1230..=1232 | 1234 | 1235 | 1239 | 1248 | 1250 | 1252 | 1253 | 1280 | 1281 | 1286
            | 1304 | 1305 | 1318 | 1327 | 1370 | 1382 | 1407 | 1410 | 1426 | 1461 | 1463 | 1582 | 1583
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_those_of_mysql() {
        for (code, state) in [
            (1146, "42S02"),
            (1054, "42S22"),
            (1062, "23000"),
            (1064, "42000"),
            (1045, "28000"),
            (1153, "08S01"),
            (1690, "22003"),
            (1105, "HY000"),
            (9007, "HY000"),
            (1366, "HY000"),
            (1222, "21000"),
            (1582, "42000"),
            (1055, "42000"),
            (1140, "42000"),
            (1111, "HY000"),
            (3065, "HY000"),
            (1049, "42000"),
        ] {
            assert_eq!(sql_state(code), state, "{code}");
        }
    }

    #[test]
    fn an_errors_own_number_wins_over_its_kind() {
        assert_eq!(code(&Error::conflict("lost")), WRITE_CONFLICT);
        assert_eq!(code(&Error::conflict("lost").with_mysql_code(1213)), 1213);
        assert_eq!(code(&Error::closed("store")), SERVER_SHUTDOWN);
        assert_eq!(code(&Error::corrupt("row")), UNKNOWN_ERROR);
    }
}
