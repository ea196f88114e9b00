"""The parts of FGMix, each usable alone: same-class tuples, scores, weights, flatness, prior.

They accept tensors and a classifier, work in any training loop, and take random numbers from `generator` if given.
"""

from fgmix.mixing._heads import block_sizes as block_sizes
from fgmix.mixing.flatness import flat_loss as flat_loss
from fgmix.mixing.prior import Discriminator as Discriminator
from fgmix.mixing.prior import Prior as Prior
from fgmix.mixing.scores import Compatibility as Compatibility
from fgmix.mixing.scores import classifier_gradients as classifier_gradients
from fgmix.mixing.scores import cosine_scores as cosine_scores
from fgmix.mixing.tuples import draw_tuples as draw_tuples
from fgmix.mixing.weights import dirichlet_weights as dirichlet_weights
from fgmix.mixing.weights import entropy as entropy
from fgmix.mixing.weights import extrapolated_share as extrapolated_share
from fgmix.mixing.weights import mixing_matrix as mixing_matrix
from fgmix.mixing.weights import scale_and_shift as scale_and_shift
