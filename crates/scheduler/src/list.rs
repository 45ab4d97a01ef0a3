//! Doubly linked lists of the elements of a vector, by index: joining and leaving cost no allocation.

/// No element.
pub(crate) const NONE: u32 = u32::MAX;

/// An element's neighbours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    previous: u32,
    next: u32,
    listed: bool,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            previous: NONE,
            next: NONE,
            listed: false,
        }
    }
}

/// An element of lists.
pub(crate) trait Linked {
    fn links(&self) -> &Links;
    fn links_mut(&mut self) -> &mut Links;
}

/// A list. An element is in at most one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
        }
    }
}

impl List {
    /// The first element, or none.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Whether the element is in a list.
    pub(crate) fn holds<T: Linked>(elements: &[T], index: u32) -> bool {
        elements[index as usize].links().listed
    }

    /// Adds an element at the end; nothing if it is listed already.
    pub(crate) fn push<T: Linked>(&mut self, elements: &mut [T], index: u32) {
        let links = elements[index as usize].links_mut();
        if links.listed {
            return;
        }
        *links = Links {
            previous: self.last,
            next: NONE,
            listed: true,
        };
        match self.last {
            NONE => self.first = index,
            last => elements[last as usize].links_mut().next = index,
        }
        self.last = index;
    }

    /// Takes an element out; nothing if it is in no list.
    pub(crate) fn remove<T: Linked>(&mut self, elements: &mut [T], index: u32) {
        let links = *elements[index as usize].links();
        if !links.listed {
            return;
        }
        match links.previous {
            NONE => self.first = links.next,
            previous => elements[previous as usize].links_mut().next = links.next,
        }
        match links.next {
            NONE => self.last = links.previous,
            next => elements[next as usize].links_mut().previous = links.previous,
        }
        *elements[index as usize].links_mut() = Links::default();
    }

    /// Moves an element to the end.
    pub(crate) fn rotate<T: Linked>(&mut self, elements: &mut [T], index: u32) {
        if self.last != index {
            self.remove(elements, index);
            self.push(elements, index);
        }
    }
}
