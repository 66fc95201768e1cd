//! Every function of the language as Kubernetes 1.36 sets it up, with its types.
//!
//! The table is text because it is read far more often than it changes: one line is one overload. A name
//! before the first dot inside parentheses is the receiver of a method.

use crate::types::Type;
use std::collections::HashMap;
use std::sync::LazyLock;

/// One way to call a function.
#[derive(Debug)]
pub struct Overload {
    pub style: Style,
    /// The receiver of a method comes first.
    pub args: Vec<Type>,
    pub result: Type,
    /// How many type parameters the signature has, numbered from zero.
    pub params: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Function,
    Method,
}

/// The overloads of a function, or `None` if there is no such function.
pub fn overloads(name: &str) -> Option<&'static [Overload]> {
    TABLE.get(name).map(Vec::as_slice)
}

static TABLE: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut table: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for line in SIGNATURES.lines().chain(comparisons().iter().copied()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, overload) = parse(line).expect("the table below is well-formed: a test reads it");
        table.entry(name).or_default().push(overload);
    }
    table
});

/// `name (args) -> result` or `name [receiver, args] -> result`.
fn parse(line: &'static str) -> Option<(&'static str, Overload)> {
    let (name, rest) = line.split_once(' ')?;
    let (args, result) = rest.split_once(" -> ")?;
    let style = if args.starts_with('[') {
        Style::Method
    } else {
        Style::Function
    };
    let inner = args.get(1..args.len() - 1)?;
    let mut params = Vec::new();
    let args = split(inner)
        .into_iter()
        .map(|text| parse_type(text, &mut params))
        .collect::<Option<Vec<Type>>>()?;
    let result = parse_type(result, &mut params)?;
    let overload = Overload {
        style,
        args,
        result,
        params: params.len() as u32,
    };
    Some((name, overload))
}

/// Splits at the commas that are not inside angle brackets.
fn split(text: &'static str) -> Vec<&'static str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(text[start..].trim());
    }
    parts
}

fn parse_type(text: &'static str, params: &mut Vec<&'static str>) -> Option<Type> {
    if let Some((outer, inner)) = text.strip_suffix('>').and_then(|text| text.split_once('<')) {
        let inner = split(inner)
            .into_iter()
            .map(|text| parse_type(text, params))
            .collect::<Option<Vec<Type>>>()?;
        return match (outer, inner.as_slice()) {
            ("list", [items]) => Some(Type::list(items.clone())),
            ("map", [key, value]) => Some(Type::map(key.clone(), value.clone())),
            ("optional", [inner]) => Some(Type::optional(inner.clone())),
            ("type", [inner]) => Some(Type::Type(Some(inner.clone().into()))),
            _ => None,
        };
    }
    Some(match text {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "A" | "B" | "K" | "V" => {
            let number = params.iter().position(|param| *param == text).unwrap_or_else(|| {
                params.push(text);
                params.len() - 1
            });
            Type::Param(number as u32)
        }
        "quantity" => Type::Opaque("kubernetes.Quantity"),
        "url" => Type::Opaque("kubernetes.URL"),
        "semver" => Type::Opaque("kubernetes.Semver"),
        "format" => Type::Opaque("kubernetes.NamedFormat"),
        "ip" => Type::Opaque("net.IP"),
        "cidr" => Type::Opaque("net.CIDR"),
        "authorizer" => Type::Opaque("kubernetes.authorization.Authorizer"),
        "path_check" => Type::Opaque("kubernetes.authorization.PathCheck"),
        "group_check" => Type::Opaque("kubernetes.authorization.GroupCheck"),
        "resource_check" => Type::Opaque("kubernetes.authorization.ResourceCheck"),
        "decision" => Type::Opaque("kubernetes.authorization.Decision"),
        _ => return None,
    })
}

/// The four orders and the methods of lists exist for many types; their lines are made here.
fn comparisons() -> &'static [&'static str] {
    static LINES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
        let mut text = String::new();
        let pairs = "bool,bool int,int int,double int,uint uint,uint uint,double uint,int double,double double,int \
                     double,uint string,string bytes,bytes timestamp,timestamp duration,duration";
        for operator in ["_<_", "_<=_", "_>_", "_>=_"] {
            for pair in pairs.split_whitespace() {
                text.push_str(&format!("{operator} ({pair}) -> bool\n"));
            }
        }
        for kind in "int uint double bool duration timestamp string bytes".split(' ') {
            text.push_str(&format!("isSorted [list<{kind}>] -> bool\n"));
            text.push_str(&format!("max [list<{kind}>] -> {kind}\n"));
            text.push_str(&format!("min [list<{kind}>] -> {kind}\n"));
            text.push_str(&format!("sort [list<{kind}>] -> list<{kind}>\n"));
            text.push_str(&format!("@sortByAssociatedKeys [list<A>, list<{kind}>] -> list<A>\n"));
        }
        for kind in "int uint double duration".split(' ') {
            text.push_str(&format!("sum [list<{kind}>] -> {kind}\n"));
        }
        // The table lives as long as the program, so its text may too.
        let text: &'static str = Box::leak(text.into_boxed_str());
        text.lines().collect()
    });
    &LINES
}

const SIGNATURES: &str = "
# operators
_?_:_ (bool, A, A) -> A
_&&_ (bool, bool) -> bool
_||_ (bool, bool) -> bool
!_ (bool) -> bool
@not_strictly_false (bool) -> bool
_==_ (A, A) -> bool
_!=_ (A, A) -> bool
_+_ (bytes, bytes) -> bytes
_+_ (double, double) -> double
_+_ (duration, duration) -> duration
_+_ (duration, timestamp) -> timestamp
_+_ (timestamp, duration) -> timestamp
_+_ (int, int) -> int
_+_ (list<A>, list<A>) -> list<A>
_+_ (string, string) -> string
_+_ (uint, uint) -> uint
_/_ (double, double) -> double
_/_ (int, int) -> int
_/_ (uint, uint) -> uint
_%_ (int, int) -> int
_%_ (uint, uint) -> uint
_*_ (double, double) -> double
_*_ (int, int) -> int
_*_ (uint, uint) -> uint
-_ (double) -> double
-_ (int) -> int
_-_ (double, double) -> double
_-_ (duration, duration) -> duration
_-_ (int, int) -> int
_-_ (timestamp, duration) -> timestamp
_-_ (timestamp, timestamp) -> duration
_-_ (uint, uint) -> uint
_[_] (list<A>, int) -> A
_[_] (map<A, B>, A) -> B
_[_] (optional<list<V>>, int) -> optional<V>
_[_] (optional<map<K, V>>, K) -> optional<V>
_[?_] (list<V>, int) -> optional<V>
_[?_] (optional<list<V>>, int) -> optional<V>
_[?_] (map<K, V>, K) -> optional<V>
_[?_] (optional<map<K, V>>, K) -> optional<V>
@in (A, list<A>) -> bool
@in (A, map<A, B>) -> bool
# sizes and conversions
size (bytes) -> int
size [bytes] -> int
size (list<A>) -> int
size [list<A>] -> int
size (map<A, B>) -> int
size [map<A, B>] -> int
size (string) -> int
size [string] -> int
type (A) -> type<A>
bool (bool) -> bool
bool (string) -> bool
bytes (bytes) -> bytes
bytes (string) -> bytes
double (double) -> double
double (int) -> double
double (string) -> double
double (uint) -> double
duration (duration) -> duration
duration (int) -> duration
duration (string) -> duration
dyn (A) -> dyn
int (int) -> int
int (double) -> int
int (duration) -> int
int (string) -> int
int (timestamp) -> int
int (uint) -> int
string (string) -> string
string (bool) -> string
string (bytes) -> string
string (double) -> string
string (duration) -> string
string (int) -> string
string (timestamp) -> string
string (uint) -> string
string (ip) -> string
string (cidr) -> string
timestamp (timestamp) -> timestamp
timestamp (int) -> timestamp
timestamp (string) -> timestamp
uint (uint) -> uint
uint (double) -> uint
uint (int) -> uint
uint (string) -> uint
# strings
matches (string, string) -> bool
matches [string, string] -> bool
contains [string, string] -> bool
endsWith [string, string] -> bool
startsWith [string, string] -> bool
charAt [string, int] -> string
indexOf [string, string] -> int
indexOf [string, string, int] -> int
lastIndexOf [string, string] -> int
lastIndexOf [string, string, int] -> int
lowerAscii [string] -> string
replace [string, string, string] -> string
replace [string, string, string, int] -> string
split [string, string] -> list<string>
split [string, string, int] -> list<string>
substring [string, int] -> string
substring [string, int, int] -> string
trim [string] -> string
upperAscii [string] -> string
format [string, list<dyn>] -> string
strings.quote (string) -> string
join [list<string>] -> string
join [list<string>, string] -> string
find [string, string] -> string
findAll [string, string] -> list<string>
findAll [string, string, int] -> list<string>
# times
getFullYear [timestamp] -> int
getFullYear [timestamp, string] -> int
getMonth [timestamp] -> int
getMonth [timestamp, string] -> int
getDayOfYear [timestamp] -> int
getDayOfYear [timestamp, string] -> int
getDayOfMonth [timestamp] -> int
getDayOfMonth [timestamp, string] -> int
getDate [timestamp] -> int
getDate [timestamp, string] -> int
getDayOfWeek [timestamp] -> int
getDayOfWeek [timestamp, string] -> int
getHours [timestamp] -> int
getHours [timestamp, string] -> int
getHours [duration] -> int
getMinutes [timestamp] -> int
getMinutes [timestamp, string] -> int
getMinutes [duration] -> int
getSeconds [timestamp] -> int
getSeconds [timestamp, string] -> int
getSeconds [duration] -> int
getMilliseconds [timestamp] -> int
getMilliseconds [timestamp, string] -> int
getMilliseconds [duration] -> int
# lists and sets
indexOf [list<A>, A] -> int
lastIndexOf [list<A>, A] -> int
slice [list<A>, int, int] -> list<A>
flatten [list<list<A>>] -> list<A>
flatten [list<dyn>, int] -> list<dyn>
lists.range (int) -> list<int>
reverse [list<A>] -> list<A>
distinct [list<A>] -> list<A>
first [list<V>] -> optional<V>
last [list<V>] -> optional<V>
unwrapOpt [list<optional<V>>] -> list<V>
optional.unwrap (list<optional<V>>) -> list<V>
sets.contains (list<A>, list<A>) -> bool
sets.equivalent (list<A>, list<A>) -> bool
sets.intersects (list<A>, list<A>) -> bool
cel.@mapInsert (map<K, V>, map<K, V>) -> map<K, V>
cel.@mapInsert (map<K, V>, K, V) -> map<K, V>
# optionals
optional.of (V) -> optional<V>
optional.ofNonZeroValue (V) -> optional<V>
optional.none () -> optional<V>
value [optional<V>] -> V
hasValue [optional<V>] -> bool
or [optional<V>, optional<V>] -> optional<V>
orValue [optional<V>, V] -> V
# Kubernetes
url (string) -> url
isURL (string) -> bool
getScheme [url] -> string
getHost [url] -> string
getHostname [url] -> string
getPort [url] -> string
getEscapedPath [url] -> string
getQuery [url] -> map<string, list<string>>
quantity (string) -> quantity
isQuantity (string) -> bool
sign (quantity) -> int
isGreaterThan [quantity, quantity] -> bool
isGreaterThan [semver, semver] -> bool
isLessThan [quantity, quantity] -> bool
isLessThan [semver, semver] -> bool
compareTo [quantity, quantity] -> int
compareTo [semver, semver] -> int
asApproximateFloat [quantity] -> double
asInteger [quantity] -> int
isInteger [quantity] -> bool
add [quantity, quantity] -> quantity
add [quantity, int] -> quantity
sub [quantity, quantity] -> quantity
sub [quantity, int] -> quantity
ip (string) -> ip
ip [cidr] -> ip
isIP (string) -> bool
ip.isCanonical (string) -> bool
family [ip] -> int
isUnspecified [ip] -> bool
isLoopback [ip] -> bool
isLinkLocalMulticast [ip] -> bool
isLinkLocalUnicast [ip] -> bool
isGlobalUnicast [ip] -> bool
cidr (string) -> cidr
isCIDR (string) -> bool
containsIP [cidr, string] -> bool
containsIP [cidr, ip] -> bool
containsCIDR [cidr, string] -> bool
containsCIDR [cidr, cidr] -> bool
prefixLength [cidr] -> int
masked [cidr] -> cidr
semver (string) -> semver
semver (string, bool) -> semver
isSemver (string) -> bool
isSemver (string, bool) -> bool
major [semver] -> int
minor [semver] -> int
patch [semver] -> int
validate [format, string] -> optional<list<string>>
format.named (string) -> optional<format>
format.dns1123Label () -> format
format.dns1123Subdomain () -> format
format.dns1035Label () -> format
format.qualifiedName () -> format
format.dns1123LabelPrefix () -> format
format.dns1123SubdomainPrefix () -> format
format.dns1035LabelPrefix () -> format
format.labelValue () -> format
format.uri () -> format
format.uuid () -> format
format.byte () -> format
format.date () -> format
format.datetime () -> format
jsonpatch.escapeKey (string) -> string
path [authorizer, string] -> path_check
group [authorizer, string] -> group_check
serviceAccount [authorizer, string, string] -> authorizer
resource [group_check, string] -> resource_check
subresource [resource_check, string] -> resource_check
namespace [resource_check, string] -> resource_check
name [resource_check, string] -> resource_check
fieldSelector [resource_check, string] -> resource_check
labelSelector [resource_check, string] -> resource_check
check [path_check, string] -> decision
check [resource_check, string] -> decision
errored [decision] -> bool
error [decision] -> string
allowed [decision] -> bool
reason [decision] -> string
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_well_formed() {
        assert!(TABLE.len() > 150, "{}", TABLE.len());
        let plus = overloads("_+_").unwrap();
        assert_eq!(plus.len(), 9);
        assert_eq!(overloads("_<_").unwrap().len(), 14);
        assert!(overloads("nonsense").is_none());
    }
}
