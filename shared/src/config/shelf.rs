//! The entries of a large list, from the text's end until their meaning is read.
//!
//! What they refer to may stand behind them, so all are kept: as bytes, each about as large as its
//! text, and a tenth of its tree. Parsing the text a second time would cost five times as much.

use std::mem;

use super::yaml::Node;

/// Entries in the order of the file.
#[derive(Default)]
pub(super) struct Shelf {
    bytes: Vec<u8>,
    count: usize,
}

impl Shelf {
    /// Keeps one.
    pub(super) fn put(&mut self, node: &Node) {
        let bytes = mem::take(&mut self.bytes);
        self.bytes = postcard::to_extend(node, bytes).expect("a node is plain data");
        self.count += 1;
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// One after the other is a tree again, for as long as `take` needs it.
    pub(super) fn each(&self, mut take: impl FnMut(&Node)) {
        let mut rest = self.bytes.as_slice();
        while !rest.is_empty() {
            let (node, behind) = postcard::take_from_bytes(rest).expect("as it was put");
            rest = behind;
            take(&node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::yaml::{self, Stream};
    use super::*;

    #[test]
    fn entries_come_back_as_they_were() {
        let text =
            "tasks:\n- {name: a, n: [1, \"2\", ~]}\n\n- text\n- {}\n- !!str 007\n- é: {\"\": ü}\n";
        let (mut shelf, mut nodes) = (Shelf::default(), Vec::new());
        let take = &mut |node| {
            shelf.put(&node);
            nodes.push(node);
        };
        yaml::parse(text, &mut Vec::new(), Stream { key: "tasks", take });

        let mut again = Vec::new();
        shelf.each(|node| again.push(format!("{node:?}")));

        assert_eq!(shelf.len(), 5);
        assert_eq!(again, nodes.iter().map(|node| format!("{node:?}")).collect::<Vec<_>>());
    }
}
