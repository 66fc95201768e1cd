//! Cron expressions of five fields, as CronJobs and sleeping times use them.
//!
//! A schedule is a set of allowed minutes, hours, days and months. The next time is found by skipping whole
//! months, days and hours that are not allowed, so that a rare schedule costs no more than a frequent one.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use std::str::FromStr;

/// No schedule that can occur at all is further away: 29 February of a leap year, over a century that skips one.
const FURTHEST_YEARS: i16 = 9;
/// No change of clocks repeats more than this.
const LONGEST_REPEAT_HOURS: i64 = 3;

/// A parsed schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both a day of the month and a weekday are limited: then either is enough, as cron has always done it.
    either_day: bool,
}

/// Why a text is not a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSchedule {
    #[error("expected 5 fields (minute, hour, day of month, month, day of week), found {0}")]
    Fields(usize),
    #[error("{field}: {text:?} is not a number, name, range or step")]
    Syntax { field: &'static str, text: String },
    #[error("{field}: {value} is not between {low} and {high}")]
    Range {
        field: &'static str,
        value: u32,
        low: u32,
        high: u32,
    },
}

struct Field {
    name: &'static str,
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &[
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const MINUTE: Field = Field {
    name: "minute",
    low: 0,
    high: 59,
    names: &[],
};
const HOUR: Field = Field {
    name: "hour",
    low: 0,
    high: 23,
    names: &[],
};
const DAY: Field = Field {
    name: "day of month",
    low: 1,
    high: 31,
    names: &[],
};
const MONTH: Field = Field {
    name: "month",
    low: 1,
    high: 12,
    names: MONTHS,
};
const WEEKDAY: Field = Field {
    name: "day of week",
    low: 0,
    high: 7,
    names: WEEKDAYS,
};

impl FromStr for Schedule {
    type Err = BadSchedule;

    fn from_str(text: &str) -> Result<Self, BadSchedule> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(BadSchedule::Fields(fields.len()));
        };
        let limited = |text: &str| !text.starts_with(['*', '?']);
        let weekdays = WEEKDAY.parse(weekday)?;
        Ok(Schedule {
            minutes: MINUTE.parse(minute)?,
            hours: HOUR.parse(hour)?,
            days: DAY.parse(day)?,
            months: MONTH.parse(month)?,
            // Sunday is 0 and 7.
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            either_day: limited(day) && limited(weekday),
        })
    }
}

/// What becomes of a time that a change of clocks skips.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Skipped {
    Lost,
    /// It comes as much later as the clocks were put forward.
    Late,
}

impl Schedule {
    /// The first time after `now`; `None` for a schedule that never occurs (30 February).
    ///
    /// A time that a change of clocks skips does not occur; one that it repeats occurs once.
    pub fn next_after(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        self.next(now, zone, Skipped::Lost)
    }

    /// As [`Schedule::next_after`], but a time that a change of clocks skips comes with the end of the change: for what
    /// must not be missed.
    pub fn next_or_late(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        self.next(now, zone, Skipped::Late)
    }

    fn next(&self, now: Timestamp, zone: &TimeZone, skipped: Skipped) -> Option<Timestamp> {
        let start = zone
            .to_datetime(now)
            .with()
            .second(0)
            .subsec_nanosecond(0)
            .build()
            .ok()?;
        let mut moment = start.checked_add(Span::new().minutes(1)).ok()?;
        let last_year = start.year().checked_add(FURTHEST_YEARS)?;
        while moment.year() <= last_year {
            match self.jump(moment) {
                Some(later) => moment = later?,
                None => {
                    let time = zone.to_ambiguous_timestamp(moment).compatible().ok()?;
                    // A moment that the clocks skip comes back as another one.
                    if time > now && (skipped == Skipped::Late || zone.to_datetime(time) == moment) {
                        return Some(time);
                    }
                    moment = moment.checked_add(Span::new().minutes(1)).ok()?;
                }
            }
        }
        None
    }

    /// The last time that is not after `now`; `None` for a schedule that never occurs.
    ///
    /// Changes of clocks count as they do for [`Schedule::next_or_late`].
    pub fn last_until(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let clock = zone.to_datetime(now);
        let first_year = clock.year().checked_sub(FURTHEST_YEARS)?;
        // While clocks repeat an hour they show less than they showed before: what they showed then is past too.
        let ahead = clock.checked_add(Span::new().hours(LONGEST_REPEAT_HOURS)).ok()?;
        let mut moment = ahead.with().second(0).subsec_nanosecond(0).build().ok()?;
        while moment.year() >= first_year {
            match self.jump_back(moment) {
                Some(earlier) => moment = earlier?,
                None => {
                    let time = zone.to_ambiguous_timestamp(moment).compatible().ok()?;
                    if time <= now {
                        return Some(time);
                    }
                    moment = moment.checked_sub(Span::new().minutes(1)).ok()?;
                }
            }
        }
        None
    }

    /// Where to look before this moment if it is not allowed, as [`Schedule::jump`] does for what is after it.
    #[allow(clippy::option_option)]
    fn jump_back(&self, moment: DateTime) -> Option<Option<DateTime>> {
        let minute_before = |moment: DateTime| moment.checked_sub(Span::new().minutes(1)).ok();
        let midnight = |date: Date| date.at(0, 0, 0, 0);
        if self.months & bit(moment.month()) == 0 {
            return Some(minute_before(midnight(moment.date().first_of_month())));
        }
        if !self.allows_day(moment.date()) {
            return Some(minute_before(midnight(moment.date())));
        }
        if self.hours & bit(moment.hour()) == 0 {
            return Some(moment.with().minute(0).build().ok().and_then(minute_before));
        }
        if self.minutes & bit(moment.minute()) == 0 {
            return Some(minute_before(moment));
        }
        None
    }

    /// Where to look next if this moment is not allowed; `None` if it is. The inner `None` is the end of time.
    #[allow(clippy::option_option)]
    fn jump(&self, moment: DateTime) -> Option<Option<DateTime>> {
        let midnight = |date: Date| date.at(0, 0, 0, 0);
        if self.months & bit(moment.month()) == 0 {
            let next = moment.date().first_of_month().checked_add(Span::new().months(1)).ok();
            return Some(next.map(midnight));
        }
        if !self.allows_day(moment.date()) {
            return Some(moment.date().tomorrow().ok().map(midnight));
        }
        if self.hours & bit(moment.hour()) == 0 {
            let hour = moment.with().minute(0).build().ok();
            return Some(hour.and_then(|hour| hour.checked_add(Span::new().hours(1)).ok()));
        }
        if self.minutes & bit(moment.minute()) == 0 {
            return Some(moment.checked_add(Span::new().minutes(1)).ok());
        }
        None
    }

    fn allows_day(&self, date: Date) -> bool {
        let day = self.days & bit(date.day()) != 0;
        let weekday = self.weekdays & bit(date.weekday().to_sunday_zero_offset()) != 0;
        if self.either_day {
            day || weekday
        } else {
            day && weekday
        }
    }
}

fn bit(value: i8) -> u64 {
    1 << value
}

impl Field {
    fn parse(&self, text: &str) -> Result<u64, BadSchedule> {
        text.split(',').try_fold(0, |set, part| Ok(set | self.part(part)?))
    }

    /// `*`, `5`, `1-5`, `*/10`, `10-30/5`, `MON-FRI`.
    fn part(&self, text: &str) -> Result<u64, BadSchedule> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(self.number(step, text)?)),
            None => (text, None),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (self.value(first, text)?, self.value(last, text)?),
            None if matches!(range, "*" | "?") => (self.low, self.high),
            // `5/15` means from 5 on.
            None if step.is_some() => (self.value(range, text)?, self.high),
            None => {
                let value = self.value(range, text)?;
                (value, value)
            }
        };
        let step = step.unwrap_or(1);
        if first > last || step == 0 {
            return Err(BadSchedule::Syntax {
                field: self.name,
                text: text.to_string(),
            });
        }
        Ok((first..=last)
            .step_by(step as usize)
            .fold(0, |set, value| set | 1 << value))
    }

    fn value(&self, text: &str, whole: &str) -> Result<u32, BadSchedule> {
        if let Some(position) = self.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(position as u32 + self.low);
        }
        let value = self.number(text, whole)?;
        if value < self.low || value > self.high {
            return Err(BadSchedule::Range {
                field: self.name,
                value,
                low: self.low,
                high: self.high,
            });
        }
        Ok(value)
    }

    fn number(&self, text: &str, whole: &str) -> Result<u32, BadSchedule> {
        let syntax = || BadSchedule::Syntax {
            field: self.name,
            text: whole.to_string(),
        };
        if text.len() > 4 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(syntax());
        }
        text.parse().map_err(|_| syntax())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schedule: &str, zone: &str, now: &str, expected: &[&str]) {
        let schedule: Schedule = schedule.parse().unwrap();
        let zone = TimeZone::get(zone).unwrap();
        let mut now: Timestamp = now.parse().unwrap();
        for expected in expected {
            now = schedule.next_after(now, &zone).unwrap();
            assert_eq!(now.to_string(), *expected);
        }
    }

    #[test]
    fn times_come_in_order() {
        check(
            "*/20 * * * *",
            "UTC",
            "2026-01-01T00:05:30Z",
            &["2026-01-01T00:20:00Z", "2026-01-01T00:40:00Z"],
        );
        check(
            "0 20 * * MON-FRI",
            "UTC",
            "2026-11-13T20:00:00Z",
            &["2026-11-16T20:00:00Z"],
        );
        check(
            "30 4 1,15 * 5",
            "UTC",
            "2026-11-01T04:30:00Z",
            &["2026-11-06T04:30:00Z", "2026-11-13T04:30:00Z", "2026-11-15T04:30:00Z"],
        );
        check("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z"]);
        check("@hourly", "UTC", "2026-12-31T23:59:59Z", &["2027-01-01T00:00:00Z"]);
        check("0 0 * * 7", "UTC", "2026-11-16T00:00:00Z", &["2026-11-22T00:00:00Z"]);
    }

    #[test]
    fn clocks_that_change_skip_and_do_not_repeat() {
        // Berlin skips 02:30 on 29 March 2026 and has 02:30 twice on 25 October.
        check(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            &["2026-03-30T00:30:00Z"],
        );
        check(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        );
    }

    #[track_caller]
    fn check_last(schedule: &str, zone: &str, now: &str, expected: &str) {
        let schedule: Schedule = schedule.parse().unwrap();
        let zone = TimeZone::get(zone).unwrap();
        let found = schedule.last_until(now.parse().unwrap(), &zone).unwrap();
        assert_eq!(found.to_string(), expected);
    }

    #[test]
    fn the_last_time_is_found_however_long_ago_it_was() {
        check_last("0 * * * *", "UTC", "2026-11-18T04:16:30Z", "2026-11-18T04:00:00Z");
        check_last("0 * * * *", "UTC", "2026-11-18T04:00:00Z", "2026-11-18T04:00:00Z");
        check_last("0 6 * * MON-FRI", "UTC", "2026-11-16T05:59:59Z", "2026-11-13T06:00:00Z");
        check_last("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", "2024-02-29T00:00:00Z");
        check_last("59 23 31 12 *", "UTC", "2026-01-01T00:00:00Z", "2025-12-31T23:59:00Z");
    }

    #[test]
    fn the_last_time_knows_of_clocks_that_change() {
        let berlin = "Europe/Berlin";
        // 02:30 is skipped on 29 March 2026, and comes an hour later.
        check_last("30 2 * * *", berlin, "2026-03-29T12:00:00Z", "2026-03-29T01:30:00Z");
        check_last("30 2 * * *", berlin, "2026-03-29T01:29:00Z", "2026-03-28T01:30:00Z");
        // On 25 October 02:30 is first at 00:30Z. At 01:10Z clocks show 02:10 for the second time, and it is past.
        check_last("30 2 * * *", berlin, "2026-10-25T01:10:00Z", "2026-10-25T00:30:00Z");
        check_last("30 2 * * *", berlin, "2026-10-25T01:40:00Z", "2026-10-25T00:30:00Z");
        check_last("30 2 * * *", berlin, "2026-10-25T00:20:00Z", "2026-10-24T00:30:00Z");
    }

    #[test]
    fn what_clocks_skip_is_lost_or_late() {
        let schedule: Schedule = "30 2 * * *".parse().unwrap();
        let (zone, night) = (TimeZone::get("Europe/Berlin").unwrap(), "2026-03-28T20:00:00Z");
        let show = |found: Option<Timestamp>| found.unwrap().to_string();
        let night: Timestamp = night.parse().unwrap();
        assert_eq!(show(schedule.next_after(night, &zone)), "2026-03-30T00:30:00Z");
        assert_eq!(show(schedule.next_or_late(night, &zone)), "2026-03-29T01:30:00Z");
    }

    #[test]
    fn what_never_occurs_ends() {
        let never: Schedule = "0 0 30 2 *".parse().unwrap();
        assert_eq!(
            never.next_after("2026-01-01T00:00:00Z".parse().unwrap(), &TimeZone::UTC),
            None
        );
        assert_eq!(
            never.last_until("2026-01-01T00:00:00Z".parse().unwrap(), &TimeZone::UTC),
            None
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "* * * *",
            "60 * * * *",
            "a * * * *",
            "5-1 * * * *",
            "*/0 * * * *",
            "* * 0 * *",
            "99999999999 * * * *",
        ] {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
    }
}
