"""What MONeT (Shah et al., ICLR 2021) published: the table "Results" of the README of its repository, utsaslab/MONeT.

GB of 2^30 bytes that a step took on one P100 of 16 GB, and percent of time over PyTorch 1.5.1, with everything kept.
"""

# By network and batch: memory of PyTorch, and (memory, overhead in percent) of MONeT's plans.
MEASURED = {
    ("resnet50", 184): (15.06, [(10.01, 3.22), (9.01, 4.68), (8.01, 5.56), (6.99, 7.28), (6.00, 9.31), (4.99, 11.95)]),
    ("googlenet", 320): (14.93, [(9.98, 7.13), (8.99, 7.87), (8.01, 8.44), (7.02, 9.71), (6.01, 12.14), (4.99, 15.77)]),
    ("unet", 11): (14.32, [(10.01, -4.10), (9.01, -2.07), (8.02, -0.09), (7.00, 1.39), (6.01, 4.95), (5.01, 11.51)]),
    ("mobilenet", 272): (14.46, [(10.02, 2.40), (9.01, 3.10), (8.02, 4.77), (7.01, 5.53), (6.01, 7.55), (5.01, 8.72)]),
    ("vgg", 176): (14.12, [(9.71, -5.30), (8.66, -4.64), (7.88, -2.18), (6.82, 1.99), (5.90, 5.44), (5.51, 9.11)]),
}
# What the plans were asked for, in the same order.
BUDGETS = {**{key: (10, 9, 8, 7, 6, 5) for key in MEASURED}, ("vgg", 176): (10, 9, 8, 7, 6, 5.5)}


def overhead(network, batch, budget):
    """In percent, of the plan for a budget in GB; None where none was published."""
    plans = dict(zip(BUDGETS[network, batch], MEASURED[network, batch][1]))
    return plans[budget][1] if budget in plans else None
