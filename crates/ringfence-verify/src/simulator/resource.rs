//! What the locks protect: a value that checks fences, with one mark for readers and one for writers.

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

/// What a client asks of a resource. The mark is raised before the value is read: whoever reads first
/// could be overtaken in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Visit {
    /// To see it beside others.
    Look { fence: u64 },
    /// To see it with the intention to write.
    Open { fence: u64 },
    /// To write what follows from what was seen.
    Write { fence: u64, saw: u64, value: u64 },
}

impl Resources {
    /// The value afterwards, or `None` if the fence is too low.
    pub(super) fn visit(&mut self, name: &str, visit: &Visit) -> Option<u64> {
        let resource = self.0.entry(name.to_owned()).or_default();
        match *visit {
            Visit::Look { fence } => {
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
        assert_eq!(visit(Visit::Look { fence: 6 }), Some(0));
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
        assert_eq!(visit(Visit::Look { fence: 6 }), None);
    }
}
