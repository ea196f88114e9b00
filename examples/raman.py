"""Raman spectra: recognise a reference material on an instrument that was not seen in training.

Three laboratories measured silicon, calcite and polystyrene with five instruments (532, 633 and 785 nm). The domains
are the instruments, the groups the specimens, which were measured through several objectives. Both are natural. There
are only 76 spectra, 8 to 24 per instrument.

Files of ramanchada2 (https://github.com/h2020charisma/ramanchada2), of the project CHARISMA. The package is not
imported, and pins older versions of what fgmix uses. Install: `pip install --no-deps ramanchada2`.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

import fgmix

SHIFTS = np.linspace(200, 1900, 512)  # in 1/cm: what all instruments measured
MATERIALS = {"S0": "silicon", "S1": "silicon", "Si": "silicon", "nC": "calcite", "sC": "calcite", "P": "polystyrene"}
INSTRUMENTS = {
    "FMNT-M_BW532": "FNMT 532 nm",
    "FMNT-M_Ho785": "FNMT 785 nm",
    "ICV_BW532": "ICV 532 nm",
    "ICV_BW785": "ICV 785 nm",
    "TOP_Ho633": "TOP 633 nm",
}


@fgmix.data.register_dataset("raman", depends_on_trial=False)
def load(_options):
    """Raman spectra of three materials, measured by three laboratories with five instruments."""
    package = find_spec("ramanchada2")
    if package is None:
        raise fgmix.UserError("Expected the package ramanchada2. Run pip install --no-deps ramanchada2.")
    files = Path(package.origin).parent.glob("auxiliary/spectra/datasets2/*/*.txt")
    named = [(file, name_material(file)) for file in sorted(files) if file.parent.name in INSTRUMENTS]
    named = [(file, material) for file, material in named if material]
    return fgmix.data.from_arrays(
        np.stack([read_spectrum(file) for file, _ in named])[:, None],  # (n, 1, 512)
        [material for _, material in named],
        [INSTRUMENTS[file.parent.name] for file, _ in named],
        name="raman",
        group=[f"{file.parent.name} {file.name.partition('_')[0]}" for file, _ in named],
    )


def name_material(file):
    """Name the material from the begin of the file's name; None for lamps and other samples."""
    return next((material for start, material in MATERIALS.items() if file.name.startswith(start)), None)


def read_spectrum(file):
    """Read intensities at SHIFTS, with mean 0 and standard deviation 1, as exposures differ."""
    lines = file.read_text(encoding="latin1").splitlines()
    table = next((i for i, line in enumerate(lines) if line.startswith("Pixel;")), None)
    if table is None:
        shift, intensity = np.loadtxt(lines, unpack=True)
    else:  # of BWTek: semicolons, and decimal commas
        names = lines[table].split(";")
        columns = [names.index("Raman Shift"), names.index("Dark Subtracted #1")]
        rows = [line.replace(",", ".").split(";") for line in lines[table + 1 :]]
        pairs = [[row[column] for column in columns] for row in rows if len(row) > max(columns)]
        shift, intensity = np.array([pair for pair in pairs if pair[0].strip()], float).T
    spectrum = np.interp(SHIFTS, shift, intensity)
    return (spectrum - spectrum.mean()) / spectrum.std()
