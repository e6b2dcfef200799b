//! The demo's views, and the checks that must hold at every moment in every read mode.

/// A view of the demo.
pub(super) struct View {
    /// Its name.
    pub(super) name: &'static str,
    /// What it shows.
    pub(super) about: &'static str,
    /// Its query.
    pub(super) query: &'static str,
    /// A query over it for the closing report.
    pub(super) report: &'static str,
}

/// The views, in the order in which they are created.
pub(super) const VIEWS: &[View] = &[
    View {
        name: "totals",
        about: "the grand total, one row",
        query: "SELECT count(*) AS flights, count(dep_delay) AS departed, sum(dep_delay) AS delay, \
                sum(landed) AS landed FROM flights",
        report: "SELECT * FROM totals",
    },
    View {
        name: "delay_by_carrier",
        about: "delays by carrier, with the carrier's name",
        query: "SELECT f.carrier, a.name, count(*) AS flights, count(f.dep_delay) AS departed, \
                sum(f.dep_delay) AS delay, avg(f.dep_delay) AS avg_delay, max(f.dep_delay) AS max_delay \
                FROM flights f JOIN airlines a ON f.carrier = a.carrier GROUP BY f.carrier, a.name",
        report: "SELECT carrier, name, flights, avg_delay, max_delay FROM delay_by_carrier ORDER BY avg_delay DESC LIMIT 5",
    },
    View {
        name: "delay_by_airport",
        about: "delays by airport of departure",
        query: "SELECT origin, count(*) AS flights, count(dep_delay) AS departed, sum(dep_delay) AS delay, \
                avg(arr_delay) AS avg_arr_delay, min(dep_delay) AS earliest FROM flights GROUP BY origin",
        report: "SELECT * FROM delay_by_airport ORDER BY origin",
    },
    View {
        name: "busiest_routes",
        about: "flights by route, with the destination's name",
        query: "SELECT f.origin, f.dest, p.name AS destination, count(*) AS flights, sum(f.distance) AS miles \
                FROM flights f JOIN airports p ON f.dest = p.faa GROUP BY f.origin, f.dest, p.name",
        report: "SELECT * FROM busiest_routes ORDER BY flights DESC, origin, dest LIMIT 5",
    },
    View {
        name: "aircraft_at_work",
        about: "aircraft in the air just now, with their model if it is known",
        query: "SELECT f.tailnum, f.origin, f.dest, f.sched_dep, p.manufacturer, p.model FROM flights f \
                LEFT JOIN planes p ON f.tailnum = p.tailnum WHERE f.dep_delay IS NOT NULL AND f.landed = 0",
        report: "SELECT count(*) AS in_the_air FROM aircraft_at_work",
    },
    View {
        name: "delay_and_wind",
        about: "delays against the wind at departure, in bands of 10 mph",
        query: "SELECT f.origin, floor(w.wind_speed / 10) * 10 AS wind_mph, count(f.dep_delay) AS departed, \
                avg(f.dep_delay) AS avg_delay FROM flights f \
                JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour \
                GROUP BY f.origin, floor(w.wind_speed / 10) * 10",
        report: "SELECT * FROM delay_and_wind ORDER BY origin, wind_mph LIMIT 8",
    },
];

/// A query whose first column must always equal its second, its third its fourth, and so on: NULLs
/// equal each other.
pub(super) struct Check {
    /// What it says.
    pub(super) about: &'static str,
    /// The query: one row.
    pub(super) query: &'static str,
}

/// Checks among views: all of them are at one cut, in whatever mode they are read.
pub(super) const CHECKS_OF_VIEWS: &[Check] = &[
    Check {
        about: "per-carrier totals add up to the grand total",
        query: "SELECT t.flights, c.flights, t.departed, c.departed, t.delay, c.delay FROM totals t, \
                (SELECT coalesce(sum(flights), 0) AS flights, coalesce(sum(departed), 0) AS departed, \
                sum(delay) AS delay FROM delay_by_carrier) c",
    },
    Check {
        about: "per-airport totals add up to the grand total",
        query: "SELECT t.flights, a.flights, t.delay, a.delay FROM totals t, \
                (SELECT coalesce(sum(flights), 0) AS flights, sum(delay) AS delay FROM delay_by_airport) a",
    },
    Check {
        about: "aircraft in the air are those that departed and did not land",
        query: "SELECT t.departed - coalesce(t.landed, 0), w.aircraft FROM totals t, \
                (SELECT count(*) AS aircraft FROM aircraft_at_work) w",
    },
];

/// A check of views against the table itself: holds in every mode but `stale`, whose views may be older.
pub(super) const CHECK_AGAINST_TABLE: Check = Check {
    about: "the grand total is that of the table",
    query: "SELECT t.flights, f.flights, t.delay, f.delay FROM totals t, \
            (SELECT count(*) AS flights, sum(dep_delay) AS delay FROM flights) f",
};
