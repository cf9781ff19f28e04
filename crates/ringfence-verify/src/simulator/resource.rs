//! The resources that the locks protect: values that check fences, with one mark for readers and
//! one for writers.

use std::collections::BTreeMap;

/// All resources, by name.
#[derive(Debug, Default)]
pub(super) struct Resources(BTreeMap<String, Resource>);

#[derive(Debug, Default)]
struct Resource {
    value: u64,
    read_mark: u64,
    write_mark: u64,
}

/// A request to a resource. The mark is raised before the value is read; otherwise another client
/// could write in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Visit {
    /// Reads as one of several readers.
    Read { fence: u64 },
    /// Reads with the intention to write.
    Open { fence: u64 },
    /// Writes the value that follows from the one that was read.
    Write { fence: u64, saw: u64, value: u64 },
}

impl Resources {
    /// The value afterwards, or `None` if the fence is too low.
    pub(super) fn visit(&mut self, name: &str, visit: &Visit) -> Option<u64> {
        let resource = self.0.entry(name.to_owned()).or_default();
        match *visit {
            Visit::Read { fence } => {
                if fence < resource.write_mark {
                    return None;
                }
                resource.read_mark = resource.read_mark.max(fence);
            }
            Visit::Open { fence } | Visit::Write { fence, .. } => {
                if fence < resource.write_mark.max(resource.read_mark) {
                    return None;
                }
                resource.write_mark = fence;
            }
        }
        if let Visit::Write { value, .. } = *visit {
            resource.value = value;
        }
        Some(resource.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_was_overtaken_is_refused() {
        let mut resources = Resources::default();
        let mut visit = |visit| resources.visit("x", &visit);
        assert_eq!(visit(Visit::Open { fence: 5 }), Some(0));
        assert_eq!(visit(Visit::Read { fence: 6 }), Some(0));
        let late = Visit::Write {
            fence: 5,
            saw: 0,
            value: 1,
        };
        assert_eq!(visit(late), None);
        assert_eq!(visit(Visit::Open { fence: 7 }), Some(0));
        let write = Visit::Write {
            fence: 7,
            saw: 0,
            value: 1,
        };
        assert_eq!(visit(write), Some(1));
        assert_eq!(visit(Visit::Read { fence: 6 }), None);
    }
}
