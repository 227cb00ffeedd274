"""Which topics of standards and guidance each section of the evidence speaks to, in words.

The words name topics, not clauses. They claim no conformance.
"""

from __future__ import annotations

from dataclasses import dataclass

STANDARDS = (
    "ISO/IEC 24029-2:2023 (robustness of neural networks: methodology for the use of formal methods)",
    "ISO/PAS 8800:2024 (road vehicles: safety and artificial intelligence)",
    "EASA concept paper, issue 2 (guidance for level 1 and 2 machine learning applications)",
)


@dataclass(frozen=True)
class Section:
    """The heading of a section, and its topic in each of :data:`STANDARDS`."""

    heading: str
    iso_24029: str
    iso_8800: str
    easa: str


REQUIREMENT = Section(
    "Requirement, property, verdict",
    "stability as a property to be proved on a domain",
    "derivation of safety requirements; assurance argument",
    "capture of requirements and their traceability to verification",
)
ITEMS = Section(
    "What was verified: network, data, settings, tool",
    "type of network and of input data",
    "identification of model and data set",
    "configuration management",
)
SAMPLE = Section(
    "How the images were drawn",
    "choice of the inputs around which domains lie",
    "properties of the data set; independence of test data",
    "data management: representativeness of the test data",
)
RADIUS = Section(
    "The radius, and why",
    "notion of domain and its bounds",
    "definition of the input space and of expected variation",
    "operational design domain; perturbations to be tolerated",
)
RESULTS = Section(
    "Results: proved, refuted, undecided",
    "outcome of the formal method: proof, counterexample, no answer",
    "verification of the model; analysis of the errors found",
    "verification of the learning process: stability and robustness of the model",
)
ARITHMETIC = Section(
    "Arithmetic assumed, and what each verdict guarantees",
    "verifiers for real numbers or for computer arithmetic; completeness",
    "differences between the verified and the deployed model",
    "verification of the inference model; differences to the trained model",
)
TOOL = Section(
    "How the tool was checked",
    "selection and management of the formal method",
    "confidence in the use of software tools",
    "assurance of tools used for verification",
)
REPEAT = Section(
    "How to repeat it",
    "repeatability of the assessment",
    "evidence that supports the assurance argument",
    "reproducibility; independent verification",
)
LIMITS = Section(
    "What this evidence does not say",
    "limits of the assessed property",
    "residual insufficiencies; measures in operation",
    "limits of the evidence; monitoring in operation",
)
SECTIONS = (REQUIREMENT, ITEMS, SAMPLE, RADIUS, RESULTS, ARITHMETIC, TOOL, REPEAT, LIMITS)
