"""Standard normal noise for actions, white or correlated in time.

In:      a shape [T, N, A] and the exponent of the power spectrum over T.
Out:     noise of which every number is N(0, 1), independent over N and A.
Source:  Timmer and Koenig 1995, Astronomy and Astrophysics 300, 707, for drawing it by frequency;
         Hollenstein et al. 2024, arXiv:2312.11091, for its use in PPO.
"""

import math

import torch
from torch import Tensor


def coloured_noise(shape: tuple[int, int, int], beta: float, generator: torch.Generator) -> Tensor:
    """Stationary Gaussian noise whose power is 1 / f^beta, [T, N, A]; white for beta 0.

    x_t   = 1/T sum_k c_k exp(2 pi i k t / T),   k = 0 .. T - 1,   c_{T-k} = conj(c_k)
    s_k^2 = E|c_k|^2 = S max(f_k, 1/T)^-beta,    f_k = min(k, T - k) / T

    The c_k are independent and normal, those without a twin T - k real, all others of uniform
    phase. So the noise is stationary, with Var x_t = sum_k s_k^2 / T^2, and S makes that 1.
    """
    device = generator.device
    if beta == 0:
        return torch.randn(shape, generator=generator, device=device)
    steps, *others = shape
    frequencies = torch.fft.rfftfreq(steps, device=device)  # [F], k = 0 .. T / 2
    s = frequencies.clamp(min=1 / steps).pow(-beta / 2)
    count = torch.full_like(s, 2)  # how often a frequency occurs: as k and as T - k, or once
    count[0] = 1
    if steps % 2 == 0:
        count[-1] = 1
    s = s * steps / (count * s.square()).sum().sqrt()
    parts = torch.stack([s / count.sqrt(), s * (count - 1) / math.sqrt(2)], -1)  # [F, 2]
    drawn = torch.randn((len(s), *others, 2), generator=generator, device=device)
    coefficients = torch.view_as_complex(drawn * parts[:, None, None])  # [F, N, A]
    noise: Tensor = torch.fft.irfft(coefficients, n=steps, dim=0)
    return noise
