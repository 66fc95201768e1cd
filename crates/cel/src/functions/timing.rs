//! Parts of times and durations.

use super::Call;
use crate::error::EvalError;
use crate::value::Value;
use jiff::Zoned;
use jiff::tz::{Offset, TimeZone};

pub fn implementation(name: &str) -> Option<Call> {
    const SECOND: i64 = 1_000_000_000;
    Some(match name {
        "getFullYear" => |args| part(args, |time| i64::from(time.year())),
        "getMonth" => |args| part(args, |time| i64::from(time.month()) - 1),
        "getDayOfYear" => |args| part(args, |time| i64::from(time.day_of_year()) - 1),
        "getDayOfMonth" => |args| part(args, |time| i64::from(time.day()) - 1),
        "getDate" => |args| part(args, |time| i64::from(time.day())),
        "getDayOfWeek" => |args| part(args, |time| i64::from(time.weekday().to_sunday_zero_offset())),
        "getHours" => |args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / (3600 * SECOND))),
            _ => part(args, |time| i64::from(time.hour())),
        },
        "getMinutes" => |args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / (60 * SECOND))),
            _ => part(args, |time| i64::from(time.minute())),
        },
        "getSeconds" => |args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / SECOND)),
            _ => part(args, |time| i64::from(time.second())),
        },
        "getMilliseconds" => |args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / 1_000_000)),
            _ => part(args, |time| i64::from(time.subsec_nanosecond()) / 1_000_000),
        },
        _ => return None,
    })
}

fn part<'a>(args: &[Value<'a>], read: fn(&Zoned) -> i64) -> Result<Value<'a>, EvalError> {
    let (time, zone) = match args {
        [Value::Timestamp(time)] => (time, TimeZone::UTC),
        [Value::Timestamp(time), Value::String(name)] => (time, zone(name)?),
        _ => return Err(EvalError::NoSuchOverload),
    };
    Ok(Value::Int(read(&time.to_zoned(zone))))
}

/// A zone by name, or an offset such as `-02:00`.
fn zone(name: &str) -> Result<TimeZone, EvalError> {
    let Some((hours, minutes)) = name.split_once(':') else {
        return TimeZone::get(name).map_err(|_| EvalError::invalid(format!("unknown time zone {name}")));
    };
    let wrong = || EvalError::invalid(format!("unknown time zone {name}"));
    let hours: i32 = hours.trim_start_matches('+').parse().map_err(|_| wrong())?;
    let minutes: i32 = minutes.parse().map_err(|_| wrong())?;
    let sign = if name.starts_with('-') { -1 } else { 1 };
    let seconds = hours.checked_mul(3600).ok_or_else(wrong)? + sign * minutes.checked_mul(60).ok_or_else(wrong)?;
    Ok(TimeZone::fixed(Offset::from_seconds(seconds).map_err(|_| wrong())?))
}
