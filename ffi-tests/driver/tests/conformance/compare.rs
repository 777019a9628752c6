//! Compares two interfaces, fact by fact.

use crate::ctype::CType;
use crate::exceptions::{CARVED, From};
use crate::interface::{Interface, Kind, Member};
use cuda_sys::Release;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A fact on which our header and NVIDIA's disagree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The item: a function, a constant, a field.
    pub item: String,
    /// What both headers say about it.
    pub text: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.item, self.text)
    }
}

/// The number of compared facts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Macros.
    pub macros: usize,
    /// Values of enumerations.
    pub values: usize,
    /// Enumerations and typedefs.
    pub types: usize,
    /// Structures and unions.
    pub records: usize,
    /// Their fields.
    pub fields: usize,
    /// Functions, each with its result.
    pub functions: usize,
    /// Their arguments.
    pub arguments: usize,
}

impl Counts {
    /// All of them.
    pub fn sum(self) -> usize {
        self.macros + self.values + self.types + self.records + self.fields + self.functions + self.arguments
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { macros, values, types, records, fields, functions, arguments } = self;
        write!(
            f,
            "{macros} macros, {values} enumeration values, {types} types, {records} structures, {fields} fields, \
             {functions} functions, {arguments} arguments"
        )
    }
}

/// The result of comparing with one release.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// The facts on which the two disagree.
    pub differences: Vec<Difference>,
    /// Our names, except functions, that the release does not have.
    pub unknown: BTreeSet<String>,
    /// Our functions that the release correctly does not declare.
    pub absent: BTreeSet<String>,
    /// Fields whose offset or size differs in a known way.
    pub reshaped: BTreeSet<String>,
    /// The number of compared facts.
    pub counts: Counts,
    /// The known differences that occurred.
    pub met: BTreeSet<&'static str>,
}

impl Comparison {
    /// Compares everything that `ours` declares with a release.
    pub fn new(ours: &Interface, theirs: &Interface, release: Release) -> Self {
        let mut this = Self::default();
        this.constants(ours, theirs);
        this.types(ours, theirs);
        this.records(ours, theirs);
        this.functions(ours, theirs, release);
        this
    }

    fn expect<T: PartialEq + fmt::Display>(&mut self, item: &str, what: &str, ours: T, theirs: T) {
        if ours != theirs {
            self.differs(item, format!("{what} is {ours} here, {theirs} there"));
        }
    }

    fn differs(&mut self, item: &str, text: String) {
        self.differences.push(Difference { item: item.to_owned(), text });
    }

    fn constants(&mut self, ours: &Interface, theirs: &Interface) {
        for (name, here) in &ours.constants {
            let Some(there) = theirs.constants.get(name) else {
                self.unknown.insert(name.clone());
                continue;
            };
            *(if here.of.is_some() { &mut self.counts.values } else { &mut self.counts.macros }) += 1;
            self.expect(name, "the value", here.value, there.value);
            if let Some(of) = &here.of {
                let there = there.of.clone().unwrap_or_else(|| "a macro".to_owned());
                self.expect(name, "the enumeration", of, &there);
            }
        }
    }

    fn types(&mut self, ours: &Interface, theirs: &Interface) {
        for (all, those) in [(&ours.types, &theirs.types), (&ours.enums, &theirs.enums)] {
            for (name, here) in all {
                match those.get(name) {
                    Some(there) => {
                        self.counts.types += 1;
                        self.expect(name, "the type", here, there);
                    }
                    None => drop(self.unknown.insert(name.clone())),
                }
            }
        }
    }

    fn records(&mut self, ours: &Interface, theirs: &Interface) {
        for (tag, here) in ours.records.iter().filter(|(tag, _)| !Interface::is_unnamed(tag)) {
            let Some(there) = theirs.records.get(tag) else {
                self.unknown.insert(tag.clone());
                continue;
            };
            self.counts.records += 1;
            if here.kind == Kind::Opaque {
                continue;
            }
            self.expect(tag, "the kind", format!("{:?}", here.kind), format!("{:?}", there.kind));
            self.expect(tag, "the size", here.size, there.size);
            self.expect(tag, "the alignment", here.align, there.align);
            self.members(tag, &ours.members(tag), &theirs.members(tag));
        }
    }

    fn members(&mut self, tag: &str, ours: &[Member], theirs: &[Member]) {
        let by_path = |members: &[Member]| -> BTreeMap<String, Member> {
            members.iter().map(|member| (member.path.clone(), member.clone())).collect()
        };
        let (ours, theirs) = (by_path(ours), by_path(theirs));
        let paths: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
        // For each reserved array, the bytes of the fields that replaced part of it.
        let mut shrunk = BTreeMap::<&str, usize>::new();
        for path in &paths {
            let (one, other) = match (ours.get(*path), theirs.get(*path)) {
                (Some(one), None) => (one, &theirs),
                (None, Some(one)) => (one, &ours),
                _ => continue,
            };
            let known = self.carved(tag, one, other);
            if known.is_some() {
                self.reshaped.insert(format!("{tag}.{path}"));
            }
            match known {
                Some(From::Reserved(array)) => *shrunk.entry(array).or_default() += one.size,
                Some(From::Union(_)) => {}
                None if ours.contains_key(*path) => {
                    self.differs(&format!("{tag}.{path}"), "the field is not there".to_owned());
                }
                None => self.differs(&format!("{tag}.{path}"), "the field is only there".to_owned()),
            }
        }
        for (path, here) in &ours {
            let Some(there) = theirs.get(path) else { continue };
            self.counts.fields += 1;
            let item = format!("{tag}.{path}");
            if let Some(&bytes) = shrunk.get(path.as_str()) {
                self.reshaped.insert(item.clone());
                self.expect(&item, "the end", here.offset + here.size, there.offset + there.size);
                self.expect(&item, "the bytes taken from it", here.offset.abs_diff(there.offset), bytes);
                continue;
            }
            self.expect(&item, "the offset", here.offset, there.offset);
            self.expect(&item, "the type", &here.ctype, &there.ctype);
        }
    }

    /// Whether a field of one side may be missing on the other side: it is listed, and it lies entirely inside the
    /// other side's field that the list names.
    fn carved(&mut self, tag: &str, one: &Member, other: &BTreeMap<String, Member>) -> Option<From> {
        let known = CARVED.iter().find(|known| known.record == tag && known.field == one.path)?;
        let (From::Reserved(array) | From::Union(array)) = known.from;
        let room = other.get(array)?;
        let bytes = |ctype: &CType| matches!(ctype, CType::Array { of, .. } if **of == CType::Number("unsigned char"));
        let inside = room.offset <= one.offset && one.offset + one.size <= room.offset + room.size;
        let fits = match known.from {
            From::Reserved(_) => inside && bytes(&room.ctype),
            From::Union(_) => inside,
        };
        fits.then(|| {
            self.met.insert(known.field);
            known.from
        })
    }

    fn functions(&mut self, ours: &Interface, theirs: &Interface, release: Release) {
        for (name, here) in &ours.functions {
            let Some(since) = here.since else {
                self.differs(name, "its comment names no release".to_owned());
                continue;
            };
            let Some(there) = theirs.functions.get(name) else {
                if since <= release {
                    self.differs(
                        name,
                        format!("its comment says that {since} introduced it, but {release} does not declare it"),
                    );
                    continue;
                }
                self.absent.insert(name.clone());
                continue;
            };
            if since > release {
                self.differs(name, format!("its comment says that {since} introduced it, but {release} declares it"));
            }
            let (here, there) = (&here.signature, &there.signature);
            self.counts.functions += 1;
            self.expect(name, "the result", &here.result, &there.result);
            self.expect(name, "the number of arguments", here.arguments.len(), there.arguments.len());
            for (index, (here, there)) in here.arguments.iter().zip(&there.arguments).enumerate() {
                self.counts.arguments += 1;
                self.expect(name, &format!("argument {}", index + 1), here, there);
            }
        }
    }
}
