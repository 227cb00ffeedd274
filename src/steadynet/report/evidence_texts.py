"""The fixed paragraphs of ``evidence.pdf``."""

from __future__ import annotations

PROPERTY = (
    "Each property says, for an image x with the label y: every input x' that differs from x by at most ε in each"
    " pixel, with pixels in [0, 1], gets the label y from the network."
)

TRACE = (
    "The requirement is represented by the properties below, one per network and radius. A property is decided "
    "image by image. Whether the verdicts suffice for the requirement is for the assessor to judge."
)

VALUES = (
    "The hash of values is that of all weights in the order of their names: name, type and shape, separated by "
    "spaces, line end, bytes. A repeated training gives the same values, though the header of its file may differ."
)

HASHES = (
    "The hashes of files are those that sha256sum prints. The hash of images is that of all their pixels as "
    "float32, then their labels as int64, little-endian, in the order of the test set. The hash of the source is "
    "that of one line per Python file, in the order of the paths: path, zero byte, SHA-256 of the file, line end."
)

KEYS = (
    "When this was written, the key of every verdict (a hash of network, image, label, radius, verifier with its "
    "settings, and soundness version) was computed again from these files, and each was the same. Version and "
    "machine are those that wrote this document. The verdicts may have been computed by another version with the "
    "same soundness version."
)

INTERVAL = (
    "The interval for the proved share is the exact one by Clopper and Pearson, two-sided, at 95 %. It speaks of "
    "the population that the test set was drawn from, with its classes in the proportions of the sample, and of "
    "what this verifier proves within the time limit. Undecided images count as not proved, so the share that is "
    "truly robust may be larger. Taking the same number of each class does not make the interval too narrow. Each"
    " interval holds by itself, not all of them together."
)

ASSUMPTION = (
    "Assumption: images were taken in the order of the file, and are treated as drawn at random, each "
    "independently of the others. This evidence does not check that."
)

HELD_OUT = "steadynet trained it on other images than those of the test set."

MAY_HAVE_SEEN = "it is not known whether it was trained on these images."

OUTCOMES = (
    "Refuted means that a counterexample is stored. Each one was run through the network again when this was "
    "written. Of undecided images, this evidence says neither that they are robust nor that they are not."
)

GUARANTEES = (
    "unsat means proved, sat means refuted. Guarantee checked: proved by steadynet's own search, with every "
    "rounding counted. solver: rests on a solver of mixed-integer programs, which computes with tolerances. tool:"
    " the word of another program. replayed: the network was run on the counterexample. A proof for float32 holds"
    " for sums in any order. A proof in exact arithmetic says nothing of rounding on the deployed machine."
)

SELF_TEST = (
    "A self-test lets the verifier decide properties whose truth is known by construction, and judges each "
    "verdict. It can find defects. It cannot show that there are none."
)

REPEATED = (
    "A training that is repeated on the same machine with the same version gives the same weights. verify --fresh"
    " decides every property again. Times differ, and properties close to the time limit may be decided or not."
)

SCOPE = (
    "This evidence speaks of the images that were verified, at these radii, for changes of each pixel by at most "
    "ε. It does not speak of other changes (rotation, weather, other sensors), of images unlike those of the test"
    " set, of the rest of the system, or of whether labels are right. It assumes that the deployed network is the"
    " one whose hash stands above, and that images reach it as pixels in [0, 1], without other processing than is"
    " part of it."
)

NO_CONFORMANCE = (
    "The table names the topics that each section speaks to, in words, so that an assessor finds them. It claims "
    "no conformance with any of these documents"
)
